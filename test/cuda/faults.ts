import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { usedDeviceBytes } from '../../src/backend/cuda/monitor.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import type { Op } from '../../src/backend/ops.js';
import { InterruptedError } from '../../src/base/errors.js';
import { openModel, openSession, planSession } from '../../src/generate/session.js';
import { spanOf } from '../../src/memory/buffers.js';
import { check } from './check.js';
import type { TestCounts } from './mini-runner.js';
import { digestsOf, minimumBudget, type Options } from './parity.js';

type Log = (line: string) => void;

const prompt = [2, 868, 356, 262, 856, 336, 1792];
const mebibyte = 1024 * 1024;
/** What NVML's figure may differ by between two readings of an idle device. */
const slackBytes = 2 * mebibyte;
/** JavaScript's heap breathes; what a leak of pinned pages or contexts would add in 90 cycles is far more. */
const residentSlackBytes = 96 * mebibyte;

/** Faults on a real GPU: each leaves the process alive, a typed error, and the memory given back. */
export async function checkFaults(model: string, counts: TestCounts, log: Log): Promise<void> {
  const options: Options = {
    model,
    backend: 'cuda',
    policy: 'packets',
    contextPositions: 128,
    clampContext: true,
  };
  const budgetBytes = await minimumBudget(options);
  const small: Options = { ...options, budgetBytes };
  const expected = JSON.stringify(await digestsOf(small, [prompt], 12));
  const { pciBusId, totalBytes } = await deviceFacts();

  await check('faults: more than the device has', counts, log, async () => {
    const gpu = await openCuda();
    try {
      const request = { label: 'everything twice', cause: 'workspace', byteLength: 2 * totalBytes } as const;
      await refusal('out-of-memory', async () => gpu.allocate(request));
      const file = { path: 'none', descriptor: -1 };
      const mirror = { label: 'mirror', cause: 'dense-weights', byteLength: 2 ** 45 } as const;
      await refusal('out-of-pinned-memory', () => gpu.hostTier.mirror(file, 0, mirror));
      gpu.release(gpu.allocate({ ...request, byteLength: mebibyte }));
    } finally {
      await gpu.close();
    }
  });

  await check('faults: memory taken between plan and allocation', counts, log, async () => {
    const hog = await openCuda();
    try {
      const plan = await planSession({ ...options, policy: 'resident' });
      // Halving steps leave less than the model needs.
      for (let byteLength = 2 ** 37; byteLength >= mebibyte / 4; ) {
        try {
          hog.allocate({ label: 'taken', cause: 'workspace', byteLength });
        } catch {
          byteLength /= 2;
        }
      }
      await refusal('out-of-memory', () => openSession(plan));
    } finally {
      await hog.close();
    }
    equal(JSON.stringify(await digestsOf(small, [prompt], 12)), expected, 'digests afterwards');
  });

  await check('faults: an abort in the middle of graphs', counts, log, async () => {
    const session = await openModel(small);
    try {
      for (let stop = 1; stop <= 12; stop += 1) {
        const controller = new AbortController();
        const generation = session.generate(
          [prompt],
          { maxNewTokens: 60, ignoreEos: true },
          { signal: controller.signal },
        );
        const ended = await (async () => {
          for await (const { index } of generation) if (index + 1 === stop) controller.abort();
        })().then(
          () => null,
          (error: unknown) => error,
        );
        if (!(ended instanceof InterruptedError))
          throw new Error(`want an interruption, got ${String(ended)}`);
      }
      const generation = session.generate([prompt], { maxNewTokens: 12, ignoreEos: true });
      const digests: string[] = [];
      for await (const { logitsDigest } of generation) digests.push(logitsDigest);
      equal(JSON.stringify({ perRequest: [digests] }), expected, 'digests afterwards');
    } finally {
      await session.close();
    }
  });

  await check('faults: SIGINT ends a run with code 130 and gives its memory back', counts, log, async () => {
    const before = usedDeviceBytes(pciBusId);
    const args = [
      '-n',
      '100',
      '--ignore-eos',
      '--budget',
      String(budgetBytes),
      '-c',
      '128',
      '--policy',
      'packets',
    ];
    const child = generateChild(model, args);
    let stdout = 0;
    child.stdout!.on('data', () => {
      stdout += 1;
      if (stdout === 1) child.kill('SIGINT');
    });
    const { code, stderr } = await exitOf(child);
    if (code !== 130) throw new Error(`exit code ${code}, want 130: ${stderr}`);
    await settled(pciBusId, before);
  });

  await check('faults: two runs at once on one GPU', counts, log, async () => {
    const together = await Promise.all([
      digestsOf(small, [prompt], 12),
      digestsOf({ ...small, policy: 'stream', budgetBytes: Infinity }, [prompt], 12),
    ]);
    for (const found of together) equal(JSON.stringify(found), expected, 'digests in one process');
    const args = ['-n', '12', '--ignore-eos', '--json', '-c', '128', '--policy', 'packets'];
    const runs = await Promise.all(
      [0, 1].map(async () => {
        const { code, stdout, stderr } = await exitOf(generateChild(model, args));
        if (code !== 0) throw new Error(`exit code ${code}: ${stderr}`);
        return JSON.stringify({ perRequest: [JSON.parse(stdout).digests.logits] });
      }),
    );
    for (const found of runs) equal(found, expected, 'digests in two processes');
  });

  await check('faults: 100 times opened and closed', counts, log, async () => {
    const readings: { used: number; resident: number }[] = [];
    for (let cycle = 0; cycle < 100; cycle += 1) {
      const session = await openModel(small);
      const generation = session.generate([prompt], { maxNewTokens: 4, ignoreEos: true });
      for await (const _ of generation);
      await session.close();
      readings.push({ used: usedDeviceBytes(pciBusId) ?? 0, resident: process.memoryUsage.rss() });
    }
    const [early, late] = [readings[9]!, readings[99]!];
    log(
      `faults: cycle 10 and 100: ${mib(early.used)} and ${mib(late.used)} MiB of the device, ${mib(early.resident)} and ${mib(late.resident)} MiB resident, locked ${lockedText()}`,
    );
    if (late.used > early.used + slackBytes) throw new Error('device memory has grown');
    if (late.resident > early.resident + residentSlackBytes) throw new Error('host memory has grown');
  });

  await check('faults: a kernel that fails', counts, log, async () => {
    const before = usedDeviceBytes(pciBusId);
    const child = spawn(process.execPath, [process.argv[1]!, '--only', 'failing-kernel'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const { code, stdout, stderr } = await exitOf(child);
    for (const line of stdout.split('\n').filter((one) => one.startsWith('failing kernel')))
      log(`faults: ${line}`);
    if (code !== 0) throw new Error(`the process that ran it ended with ${code}: ${stderr}${stdout}`);
    await settled(pciBusId, before);
  });
}

/** Reads an address that is nobody's, in a process of its own: the driver may refuse the GPU to it from then on. */
export async function failingKernel(): Promise<void> {
  const gpu = await openCuda();
  const held = spanOf(gpu.allocate({ label: 'held', cause: 'workspace', byteLength: 4096 }));
  const nowhere = { buffer: { ...held.buffer, address: 4096 }, byteOffset: 0, byteLength: 4096 };
  const op: Op = { kind: 'add', count: 1024, a: nowhere, b: held, out: held };
  const failed = await attempt(() => gpu.submit([{ op, label: 'layers.0.trap' }]));
  const { code, data, message } = failed as {
    code?: string;
    data?: Record<string, unknown>;
    message?: string;
  };
  console.log(`failing kernel: ${message} [${code}]`);
  if (code !== 'gpu-failed') throw new Error(`want "gpu-failed", got ${String(failed)}`);
  for (const key of ['call', 'cudaCode', 'kernels'])
    if (data?.[key] === undefined) throw new Error(`the error lacks ${key}`);
  if (!/CUDA_ERROR_\w+: .+ while it ran "add" for "layers.0.trap"/.test(message ?? ''))
    throw new Error(`the error does not name text and kernel: ${message}`);
  const later = await attempt(() => gpu.read(held));
  if (later !== failed) throw new Error(`want the same error later, got ${String(later)}`);
  gpu.release(held.buffer);
  await gpu.close();
  const again = await attempt(async () => (await openCuda()).close());
  console.log(
    `failing kernel: opened again in the same process: ${again === null ? 'works' : String(again)}`,
  );
}

async function deviceFacts(): Promise<{ pciBusId: string; totalBytes: number }> {
  const gpu = await openCuda();
  await gpu.close();
  return gpu.device;
}

async function attempt(run: () => Promise<unknown>): Promise<unknown> {
  try {
    await run();
    return null;
  } catch (error) {
    return error;
  }
}

async function refusal(code: string, run: () => Promise<unknown>): Promise<void> {
  const error = await attempt(run);
  const found = (error as { code?: string } | null)?.code;
  if (found !== code) throw new Error(`want "${code}", got ${String(error)}`);
}

function equal(found: string, expected: string, what: string): void {
  if (found !== expected) throw new Error(`${what} differ`);
}

function generateChild(model: string, args: readonly string[]) {
  const program = resolve('bin/waybill.js');
  const given = ['generate', '-m', model, '--prompt-ids', prompt.join(','), '--backend', 'cuda', ...args];
  return spawn(process.execPath, [program, ...given], { stdio: ['ignore', 'pipe', 'pipe'] });
}

async function exitOf(
  child: ReturnType<typeof spawn>,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  let [stdout, stderr] = ['', ''];
  child.stdout!.on('data', (bytes) => {
    stdout += String(bytes);
  });
  child.stderr!.on('data', (bytes) => {
    stderr += String(bytes);
  });
  const code = await new Promise<number | null>((done) => child.on('close', done));
  return { code, stdout, stderr };
}

/** The driver gives back the memory of a process that has ended a moment later. */
async function settled(pciBusId: string, before: number | null): Promise<void> {
  for (let wait = 0; wait < 50; wait += 1) {
    const used = usedDeviceBytes(pciBusId);
    if (used === null || before === null || used <= before + slackBytes) return;
    await delay(100);
  }
  throw new Error(`${usedDeviceBytes(pciBusId)} bytes of the device are used, ${before} before`);
}

function mib(bytes: number): string {
  return (bytes / mebibyte).toFixed(0);
}

function lockedText(): string {
  try {
    const status = readFileSync('/proc/self/status', 'utf8');
    return /^VmPin:\s*(.*)$/m.exec(status)?.[1] ?? 'unknown';
  } catch {
    return 'unknown';
  }
}
