import { existsSync } from 'node:fs';
import { availableParallelism, cpus, totalmem } from 'node:os';
import { delimiter, join } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { nativeStatus } from '../backend/cpu/native-status.js';
import { openCpu } from '../backend/cpu/open-cpu.js';
import type { CudaStatus } from '../backend/cuda/cuda-status.js';
import { formatByteSize } from '../base/byte-size.js';
import { waybillHome } from '../checkpoint/prepared-location.js';
import { packageRoot } from '../receipt/program.js';
import { openTerminal } from './terminal.js';

/** One thing that was looked at. */
interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'absent';
  readonly text: string;
}

/** `waybill doctor`: which kernels are in use and why, limits, and what optional parts are there. */
export function doctorCommand() {
  return new Command('doctor').option('--json', 'print one JSON object').action(async (options) => {
    const terminal = openTerminal(options);
    const findings = [
      platform(),
      ...(await kernels()),
      native(),
      ...(await cuda()),
      ...optionalParts(),
      home(),
    ];
    const width = Math.max(...findings.map(({ name }) => name.length));
    for (const { name, state, text } of findings) {
      terminal.print(`${state === 'ok' ? 'ok    ' : 'absent'}  ${name.padEnd(width)}  ${text}\n`);
    }
    if (terminal.json) terminal.printJson({ findings });
  });
}

function platform(): Finding {
  const processor = cpus()[0]?.model.trim() ?? 'unknown processor';
  const run = process.platform === 'linux' && process.arch === 'x64';
  const support = run ? 'tested platform' : 'untested platform, expected to work (see README, "Platforms")';
  const text = `${process.platform} ${process.arch}, ${processor}, ${availableParallelism()} processors for this process, ${formatByteSize(totalmem())} of memory, Node.js ${process.version}; ${support}`;
  return { name: 'platform', state: 'ok', text };
}

async function kernels(): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const choice of ['auto', 'wasm'] as const) {
    const name = choice === 'auto' ? 'kernels in use' : 'WebAssembly floor';
    try {
      const backend = await openCpu({ kernels: choice });
      const { info, addressableBytes } = backend;
      const limit =
        addressableBytes === Infinity
          ? 'no limit of their own'
          : `hold at most ${formatByteSize(addressableBytes)} (${addressableBytes} B)`;
      findings.push({
        name,
        state: 'ok',
        text: `${info.kernels}, ${info.threads} threads; ${limit}; ${info.reason}`,
      });
      await backend.close();
    } catch (error) {
      findings.push({ name, state: 'absent', text: error instanceof Error ? error.message : String(error) });
    }
  }
  return findings;
}

function native(): Finding {
  const status = nativeStatus();
  if (status.available) {
    const text = `${status.instructionSets.join(', ')}; ${status.reason}`;
    return { name: 'native kernels', state: 'ok', text };
  }
  const remedy = `build them with "npm run build:native" in "${packageRoot()}", also where npm blocks install scripts; that needs a C++ compiler (c++, g++ or clang++)`;
  return { name: 'native kernels', state: 'absent', text: `${status.reason}; ${remedy}` };
}

/** Driver, GPUs with their link, compiler library; loaded only here and by the backend itself. */
async function cuda(): Promise<Finding[]> {
  const absent = (name: string, text: string): Finding => ({ name, state: 'absent', text });
  let status: CudaStatus;
  try {
    status = (await import('../backend/cuda/cuda-status.js')).cudaStatus();
  } catch (error) {
    return [absent('CUDA', error instanceof Error ? error.message : String(error))];
  }
  const { driver, driverProblem, devices, compiler, compilerProblem, kernelCache } = status;
  const problem =
    driverProblem ?? compilerProblem ?? (devices.length === 0 ? 'the driver shows no GPU' : null);
  const findings: Finding[] = [
    {
      name: 'backend auto',
      state: 'ok',
      text:
        problem === null
          ? 'cuda, where a plan fits the GPU, else cpu (--backend names one)'
          : `cpu: ${problem}`,
    },
    driver === null
      ? absent('CUDA driver', driverProblem!)
      : { name: 'CUDA driver', state: 'ok', text: `serves CUDA ${driver}` },
  ];
  for (const { index, name, architecture, totalBytes, usedBytes, link } of devices) {
    const free =
      usedBytes === null
        ? formatByteSize(totalBytes)
        : `${formatByteSize(totalBytes - usedBytes)} free of ${formatByteSize(totalBytes)}`;
    const lanes =
      link === null
        ? 'link unknown'
        : `PCIe ${link.generation} x${link.width} now, ${link.maxGeneration} x${link.maxWidth} at most`;
    const text = `${name}, compute capability ${architecture / 10}, ${free}, ${lanes}`;
    findings.push({ name: `GPU ${index}`, state: 'ok', text });
  }
  findings.push(
    compiler === null
      ? absent('CUDA compiler', compilerProblem!)
      : {
          name: 'CUDA compiler',
          state: 'ok',
          text: `NVRTC ${compiler.version}, "${compiler.path}"; kernels in "${kernelCache}"`,
        },
  );
  return findings;
}

function optionalParts(): Finding[] {
  const programs = [
    ['C++ compiler', ['c++', 'g++', 'clang++'], 'only needed to build the native kernels'],
  ] as const;
  return programs.map(([name, commands, purpose]) => {
    const path = commands.map(findProgram).find((found) => found !== null) ?? null;
    return path === null
      ? { name, state: 'absent', text: `none of ${commands.join(', ')} is on the PATH; ${purpose}` }
      : { name, state: 'ok', text: path };
  });
}

function home(): Finding {
  const path = waybillHome();
  const text = existsSync(path)
    ? `prepared models in "${path}"`
    : `prepared models will be kept in "${path}"`;
  return { name: 'cache', state: 'ok', text };
}

function findProgram(name: string): string | null {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, name);
    if (folder !== '' && existsSync(path)) return path;
  }
  return null;
}
