import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { driverVersion, loadDriver, versionText } from '../../src/backend/cuda/driver.js';
import { kernelSourceDigest, readKernelUnits } from '../../src/backend/cuda/kernel-sources.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { SetupError } from '../../src/base/errors.js';
import { syntheticShapes } from '../../src/checkpoint/synthetic-opt.js';
import { describeBackendContract } from '../backend/contract.js';
import { cudaContractGroups } from '../backend/cuda-support.js';
import { benchKernels, type KernelTime } from './bench-kernels.js';
import { checkCertificates } from './certificates.js';
import { benchCertify } from './certify-bench.js';
import { checkCommitted } from './committed-digests.js';
import { countedPass } from './counters.js';
import { checkFaults, failingKernel } from './faults.js';
import { benchLoad } from './load-bench.js';
import { runDeclared, type TestCounts } from './mini-runner.js';
import { checkMoreParity } from './more-parity.js';
import { checkNativeModel, checkNativeProducts } from './native.js';
import { checkParity, fittingPrompts, type ParityReport } from './parity.js';
import { benchQuantised } from './quantised-bench.js';
import { benchRetention } from './retention-bench.js';
import { checkRetention } from './retention-counts.js';
import { sanitizeCases } from './sanitize.js';
import { benchShape, type ShapeReport } from './shape-bench.js';
import { shapeNames } from './shape-model.js';
import { benchVariants, type VariantTime } from './variant-bench.js';

/**
 * The CUDA tests, without npm: `node build/cuda-tests/test/cuda/main.js [--only PARTS] [--report FILE]`, where PARTS are some
 * of contract, parity, more-parity, committed, retention, numerics, faults, sanitize, bench, variants, shape, rows, native, counters, load, separated by commas.
 * Says plainly that it did not run where there is no GPU.
 */
const models = ['models/opt-books-target', 'models/opt-books-draft', 'models/reglu-books'];
const { values } = parseArgs({
  options: {
    only: {
      type: 'string',
      default: 'contract,parity,more-parity,committed,retention,numerics,faults,bench',
    },
    report: { type: 'string' },
    groups: { type: 'string', default: '' }, // of the contract: what their names begin with
    tokens: { type: 'string', default: '16' },
    quiet: { type: 'boolean', default: false },
    models: { type: 'string', default: models.join(',') },
    kv: { type: 'string', default: 'f16,f32' },
    cpu: { type: 'boolean', default: false },
    // Of the part "shape": sizes, budgets and active shares in per cent, arms, rounds, a checkpoint for the rivals.
    shapes: { type: 'string', default: '2.7b' },
    budgets: { type: 'string', default: '' },
    shares: { type: 'string', default: '' },
    arms: { type: 'string', default: '' },
    rounds: { type: 'string', default: '4' },
    rivals: { type: 'string' },
    python: { type: 'string', default: 'python3' },
    // Of the part "load": a folder of the disk that is measured.
    disk: { type: 'string', default: tmpdir() },
    // Of the part "rows": exponents of Zipf's law with shares of the position, as in "0.5/0.55,1.5/0.55".
    usages: { type: 'string', default: '' },
  },
});
const parts = new Set(values.only.split(','));
const lines: string[] = [];
const log = (line: string): void => {
  lines.push(line);
  if (!values.quiet || !line.startsWith('ok ')) console.log(line);
};

const prompts = [
  [2, 868, 356, 262, 856, 336, 1792, 3512, 290, 2805, 22, 331, 681, 3052, 281, 522, 285, 282, 368],
  [2, 100, 524, 7],
  [2],
];

const home = await mkdtemp(join(tmpdir(), 'waybill-cuda-'));
process.env.HF_HOME ??= home;
const counts: TestCounts = { passed: 0, failures: [] };
const parity: ParityReport[] = [];
let times: KernelTime[] = [];
let variants: VariantTime[] = [];
let shape: ShapeReport | null = null;
/** Parts that are alone in their process: under a tool that makes everything slow, or at the price of the GPU. */
const alone = new Map([
  ['sanitize', () => sanitizeCases(log)],
  ['failing-kernel', failingKernel],
  ['counters', countLaunches],
  ['rows', benchRows],
  ['quantised', benchLowBit],
  ['load', benchLoading],
]);

async function benchLoading(): Promise<void> {
  const found = await benchLoad(
    {
      shape: shapeNames.find((name) => name === values.shapes)!,
      folder: values.disk,
      rounds: Number(values.rounds),
    },
    log,
  );
  if (values.report !== undefined) await writeFile(values.report, `${JSON.stringify(found, null, 2)}\n`);
}

/** Quantised products and certificates, both of which read low-bit copies of weights. */
async function benchLowBit(): Promise<void> {
  const gpu = await openCuda();
  const times = [...(await benchQuantised(gpu, log)), ...(await benchCertify(gpu, log))];
  log('without overlap:');
  gpu.planWith({ overlaps: false });
  const alone = await benchQuantised(gpu, log, { names: ['2.7b'], rows: [1], tunings: [{}] });
  times.push(...alone.map((time) => ({ ...time, name: `alone: ${time.name}` })));
  await gpu.close();
  if (values.report !== undefined) await writeFile(values.report, `${JSON.stringify(times, null, 2)}\n`);
}

/** Ways for rows to come; several usages of neurons, the stated one first. */
async function benchRows(): Promise<void> {
  const usual = { exponent: 1, positionShare: 0.55 };
  const swept = values.usages.split(',').filter(Boolean);
  const found = await benchRetention(
    {
      shape: syntheticShapes[`opt-${values.shapes}`]!,
      budgetBytes: 4800 * 1024 * 1024,
      promptTokens: 512,
      tokens: Number(values.tokens),
      rounds: Number(values.rounds),
      usages: [usual, ...swept.map((one) => usageOf(one))],
      everyArm: swept.length === 0,
      arms: values.arms.split(',').filter(Boolean),
    },
    log,
  );
  for (const message of found.failures) counts.failures.push({ name: 'rows', message });
  if (values.report !== undefined)
    await writeFile(values.report, `${JSON.stringify(found.times, null, 2)}\n`);
  if (counts.failures.length > 0) process.exitCode = 1;
}

function usageOf(text: string): { exponent: number; positionShare: number } {
  const [exponent, positionShare] = text.split('/').map(Number);
  return { exponent: exponent!, positionShare: positionShare! };
}

/** For `ncu --launch-skip S --launch-count N`, which then sees one decode pass of `--arms NAME`. */
async function countLaunches(): Promise<void> {
  const pass = await countedPass(values.arms === '' ? 'resident' : values.arms);
  if (values.report !== undefined) await writeFile(values.report, `${JSON.stringify(pass)}\n`);
  log(`--launch-skip ${pass.skip} --launch-count ${pass.launches.length}`);
}

async function everything(): Promise<void> {
  const began = process.hrtime.bigint();
  const gpu = await openCuda();
  const milliseconds = Number((process.hrtime.bigint() - began) / 1_000_000n);
  log(`opened ${gpu.info.kernels}: ${gpu.info.reason}, ${milliseconds} ms`);
  if (parts.has('bench')) {
    times = [...(await benchKernels(gpu, log)), ...(await benchCertify(gpu, log))];
    const alone = await openCuda({ overlap: false });
    log('without overlap:');
    await benchKernels(alone, log);
    await alone.close();
  }
  if (parts.has('variants')) variants = await benchVariants(gpu, counts, log);
  await gpu.close();
  if (parts.has('contract')) {
    describeBackendContract(
      'cuda',
      (threads) => openCuda({ graphs: threads % 2 === 1 }),
      cudaContractGroups().filter(({ name }) => name.startsWith(values.groups)),
    );
    await runDeclared(counts, log);
  }
  if (parts.has('native')) {
    const status = nativeStatus();
    log(`native kernels: ${status.available ? status.instructionSets.join(', ') : status.reason}`);
    for (const instructionSet of status.instructionSets) {
      describeBackendContract(`native ${instructionSet}`, (threads) =>
        openNative({ threads, instructionSet }),
      );
    }
    await runDeclared(counts, log);
  }
  if (parts.has('shape')) {
    const percents = (text: string) =>
      text
        .split(',')
        .filter(Boolean)
        .map((one) => Number(one) / 100);
    const asked = values.shapes.split(',');
    shape = await benchShape(
      {
        shapes: shapeNames.filter((name) => asked.includes(name)),
        budgets: percents(values.budgets),
        shares: percents(values.shares),
        arms: values.arms.split(',').filter(Boolean),
        promptTokens: 512,
        tokens: Number(values.tokens),
        rounds: Number(values.rounds),
        withCpu: values.cpu,
        rivals: values.rivals === undefined ? null : { checkpoint: values.rivals, python: values.python },
      },
      log,
    );
    for (const message of shape.failures) counts.failures.push({ name: 'shape', message });
  }
  if (parts.has('parity')) {
    const kvs = values.kv.split(',').filter((kv) => kv === 'f16' || kv === 'f32');
    for (const model of values.models.split(',')) {
      parity.push(await checkParity(model, prompts, Number(values.tokens), kvs, counts, log));
      await checkCertificates(
        model,
        await fittingPrompts(model, prompts, Number(values.tokens)),
        counts,
        log,
      );
    }
  }
  if (parts.has('committed')) parity.push(...(await checkCommitted(counts, log)));
  if (parts.has('more-parity')) {
    for (const model of values.models.split(',')) {
      parity.push(await checkMoreParity(model, prompts, Number(values.tokens), counts, log));
    }
  }
  if (parts.has('retention')) {
    for (const model of values.models.split(',')) {
      await checkRetention(model, await fittingPrompts(model, prompts, 12), 12, counts, log);
    }
  }
  if (parts.has('numerics')) {
    await checkNativeProducts(counts, log);
    for (const model of values.models.split(',')) {
      const fitting = await fittingPrompts(model, prompts, Number(values.tokens));
      await checkNativeModel(model, fitting, Number(values.tokens), counts, log);
    }
  }
  if (parts.has('faults')) await checkFaults(values.models.split(',')[0]!, counts, log);
  for (const { name, message } of counts.failures) console.log(`FAIL ${name}: ${message}`);
  for (const { model, compared, digest } of parity) {
    console.log(`parity ${model}: ${compared} logits digests, last ${digest.slice(0, 16)}`);
  }
  console.log(`cuda tests: ${counts.passed} passed, ${counts.failures.length} failed`);
  if (counts.failures.length > 0) process.exitCode = 1;
  if (values.report !== undefined) {
    const report = {
      parts: [...parts],
      driver: versionText(driverVersion(loadDriver())),
      kernelSources: kernelSourceDigest(readKernelUnits('native')),
      device: gpu.device,
      kernels: gpu.info,
      date: new Date().toISOString(),
      counts,
      parity,
      times,
      variants,
      shape,
    };
    await writeFile(values.report, `${JSON.stringify(report, null, 2)}\n`);
    await writeFile(`${values.report}.log`, `${lines.join('\n')}\n`);
  }
}

try {
  await (alone.get(values.only) ?? everything)();
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.log(`cuda tests: not run: ${error.message} [${error.code}]`);
} finally {
  await rm(home, { recursive: true, force: true });
}
