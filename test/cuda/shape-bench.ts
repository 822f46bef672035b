import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { planPlacement } from '../../src/acquire/plan.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { storedBytes } from '../../src/base/stored-type.js';
import { planWeights } from '../../src/checkpoint/prepared-layout.js';
import type { PreparedModel, PreparedTensor } from '../../src/checkpoint/prepared-model.js';
import { openSession, type Session } from '../../src/generate/session.js';
import { sessionOptions } from '../../src/generate/session-options.js';
import { kvBytes } from '../../src/memory/kv-cache.js';
import { planWorkspace } from '../../src/model/workspace.js';
import { describe as describeShape, optConfig } from '../acquire/support/opt-shape.js';

const mebibyte = 1024 * 1024;
const promptTokens = 512;

/** One arm of the shape benchmark. */
export interface ArmTime {
  readonly arm: string;
  readonly regime: string;
  readonly plannedBytes: number;
  readonly pinnedBytes: number;
  readonly loadGigabytesPerSecond: number;
  readonly prefillMs: number;
  readonly msPerToken: number; // median, as a caller sees it
  readonly deviceMsPerToken: number | null; // by events, passes of one submission alone
  readonly rowsPerToken: number;
  readonly digests: readonly string[];
}

/** OPT-2.7B with random weights of the right sizes, 3.4 % of its neurons active; digests of all arms must agree. */
export async function benchShape(
  tokens: number,
  withCpu: boolean,
  log: (line: string) => void,
): Promise<ArmTime[]> {
  const prepared = writeShape();
  const times: ArmTime[] = [];
  try {
    const arms: [string, PolicyName, number][] = [
      ['resident', 'resident', Infinity],
      ['resident-sparse', 'resident-sparse', Infinity],
      ['packets 4800 MiB', 'phase', 4800 * mebibyte],
      ['packets regime C', 'phase', 0],
      ['stream 4800 MiB', 'stream', 4800 * mebibyte],
    ];
    for (const [name, policy, budget] of arms) {
      times.push(await runArm(name, policy, budget, await openCuda(), prepared, tokens, log));
    }
    if (withCpu) {
      times.push(
        await runArm(
          'cpu resident',
          'resident',
          Infinity,
          await openNative({ threads: 16 }),
          prepared,
          8,
          log,
        ),
      );
    }
    const [first] = times;
    for (const { arm, digests } of times) {
      const same = digests.every((digest, index) => digest === (first!.digests[index] ?? digest));
      log(`${same ? 'ok  ' : 'FAIL'} digests of ${arm}: ${digests.length} tokens`);
      if (!same) process.exitCode = 1;
    }
  } finally {
    closeSync(prepared.weightsFile.descriptor);
    rmSync(prepared.directory, { recursive: true });
  }
  return times;
}

async function runArm(
  arm: string,
  policy: PolicyName,
  budget: number,
  backend: Backend,
  prepared: PreparedModel,
  tokens: number,
  log: (line: string) => void,
): Promise<ArmTime> {
  const session = await open(policy, budget, backend, prepared);
  try {
    const { placement } = session.plan;
    const prompt = Array.from({ length: promptTokens }, (_, index) => (index * 7919 + 11) % 50_000);
    const run = async (count: number) => {
      const generation = session.generate([prompt], { maxNewTokens: count, ignoreEos: true });
      const digests: string[] = [];
      for await (const event of generation) digests.push(event.logitsDigest);
      return { digests, outcome: generation.outcome };
    };
    const first = await run(3); // warm: graphs recorded, pages touched
    const { digests, outcome } = await run(tokens);
    const steps = outcome.times.decodeStepNs.map((ns) => Number(ns) / 1e6).sort((a, b) => a - b);
    const rows = outcome.bytes.movedRows['packet-rows'] / Math.max(1, steps.length);
    const loaded = session.setup.moved.setup;
    const time: ArmTime = {
      arm,
      regime: placement.regime,
      plannedBytes: placement.totalBytes,
      pinnedBytes: 'usage' in backend ? (backend.usage as { pinnedBytes: number }).pinnedBytes : 0,
      loadGigabytesPerSecond: loaded / Number(session.openNs),
      prefillMs: Number(outcome.times.prefillNs) / 1e6,
      msPerToken: steps[steps.length >> 1]!,
      deviceMsPerToken: await deviceTime(session, run),
      rowsPerToken: rows,
      digests,
    };
    const firstMs = Number(first.outcome.times.prefillNs) / 1e6;
    const fastest = steps[0]!;
    log(
      `arm ${arm.padEnd(18)} regime ${time.regime} ${(time.plannedBytes / mebibyte).toFixed(0)} MiB planned, ${(time.pinnedBytes / mebibyte).toFixed(0)} MiB pinned, load ${time.loadGigabytesPerSecond.toFixed(2)} GB/s, prefill ${firstMs.toFixed(1)} then ${time.prefillMs.toFixed(1)} ms, ${time.msPerToken.toFixed(3)} ms a token (best ${fastest.toFixed(3)}, device ${time.deviceMsPerToken?.toFixed(3) ?? '-'}), ${rows.toFixed(0)} rows`,
    );
    return time;
  } finally {
    await session.close();
  }
}

/** Time on the device of a decode pass that is one submission: by events around it. */
async function deviceTime(
  session: Session,
  run: (count: number) => Promise<unknown>,
): Promise<number | null> {
  const { backend } = session;
  if (!('measure' in backend)) return null;
  const gpu = backend as Backend & { measure(enqueue: () => Promise<unknown>): Promise<number> };
  const submit = gpu.submit.bind(gpu);
  const each: number[] = [];
  gpu.submit = async (ops) => {
    const milliseconds = await gpu.measure(() => submit(ops));
    if (ops.length > 200) each.push(milliseconds);
  };
  try {
    await run(9);
  } finally {
    gpu.submit = submit;
  }
  const decodes = each.slice(1).sort((a, b) => a - b);
  return decodes[decodes.length >> 1] ?? null;
}

async function open(
  policy: PolicyName,
  budget: number,
  backend: Backend,
  prepared: PreparedModel,
): Promise<Session> {
  const { description } = prepared;
  const { config } = description;
  const capacity = 640;
  const kvShape = {
    layers: config.layers,
    slots: 1,
    kvHeads: config.kvHeads,
    headDim: config.headDim,
    capacity,
    type: 'f16',
  } as const;
  const workspace = planWorkspace(description, {
    maxRows: promptTokens,
    maxLogitsRows: 1,
    capacity,
    parallelism: backend.parallelism,
  });
  const request = {
    description,
    tensor: (id: string) => prepared.tensor(id),
    policy,
    fixed: [
      ...(backend.overheads ?? []),
      { label: 'kv cache', cause: 'kv', bytes: kvBytes(kvShape) },
      ...workspace.requests.map(({ label, cause, byteLength }) => ({ label, cause, bytes: byteLength })),
    ] as const,
    maxRows: promptTokens,
    hostTier: backend.hostTier !== undefined,
  };
  // Regime C with nothing to spare: all dense matrices, and room for less than one second projection.
  const dense = description.matrices
    .filter(({ role }) => role !== 'second')
    .reduce((sum, { id }) => sum + prepared.tensor(id).byteLength, 0);
  const second = prepared.tensor('layers.0.second').byteLength;
  const minimum = planPlacement({ ...request, budgetBytes: Infinity }).minimumBytes;
  const budgetBytes = budget === 0 ? minimum + dense + Math.floor(second / 2) : budget;
  const placement = planPlacement({ ...request, budgetBytes });
  const options = sessionOptions({
    model: 'opt-2.7b shape',
    policy,
    budgetBytes,
    contextPositions: capacity,
    prefillChunk: promptTokens,
  });
  return openSession({
    options,
    directory: prepared.directory,
    prepared,
    backend,
    placement,
    request: { ...request, budgetBytes },
    kvShape,
  } as Parameters<typeof openSession>[0]);
}

/** Random weights in the prepared layout: one block of bytes over and over, norms of 1, biases that let 3.4 % through. */
function writeShape(): PreparedModel {
  const shape = { hiddenSize: 2560, ffnSize: 10_240, layers: 32, heads: 32, vocabSize: 50_272 };
  const description = describeShape(optConfig(shape), 'f16');
  const plan = planWeights(description);
  const directory = mkdtempSync(join(tmpdir(), 'waybill-shape-'));
  const path = join(directory, 'weights');
  const descriptor = openSync(path, 'w+');
  const block = halves(32 * mebibyte);
  const byId = new Map<string, PreparedTensor>();
  let at = 0;
  for (const { id, type, shape, byteOffset, byteLength } of plan.tensors) {
    byId.set(id, { id, type, shape, byteOffset, byteLength, sha256: '', finite: true });
    if (type === 'f32') {
      const value = id.endsWith('.gamma') ? 1 : id.endsWith('first.bias') ? -1.82 : 0;
      const values = new Float32Array(byteLength / storedBytes[type]).fill(value);
      writeSync(descriptor, new Uint8Array(values.buffer), 0, byteLength, byteOffset);
      continue;
    }
    for (let done = 0; done < byteLength; ) {
      const from = at % block.byteLength;
      const length = Math.min(block.byteLength - from, byteLength - done);
      writeSync(descriptor, block, from, length, byteOffset + done);
      done += length;
      at += length + 2 * 1013;
    }
  }
  return {
    directory,
    description,
    manifestDigest: '',
    sourceDigest: '',
    sourceFiles: [],
    weightsFile: { path, descriptor, byteLength: plan.byteLength },
    tensor: (id) => byId.get(id)!,
    close: async () => {}, // several arms share it
  };
}

/** Uniform in +-0.034: variance 1 / 2560. */
function halves(byteLength: number): Uint8Array {
  const values = new Uint16Array(byteLength / 2);
  let state = 12345;
  for (let index = 0; index < values.length; index += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    // The top bits: the low ones of such a generator repeat within a row.
    const magnitude = ((state >>> 9) & 0x3fffff) / 2 ** 22;
    values[index] = toHalf(magnitude * 0.0342) | ((state >>> 31) << 15);
  }
  return new Uint8Array(values.buffer);
}

/** Positive normal numbers, truncated; smaller ones become zero. */
function toHalf(value: number): number {
  if (value < 2 ** -14) return 0;
  const exponent = Math.floor(Math.log2(value));
  return ((exponent + 15) << 10) | Math.floor((value / 2 ** exponent - 1) * 1024);
}
