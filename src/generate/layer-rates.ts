import { firstOps, type MachineRates } from '../acquire/machine-rates.js';
import type { Backend } from '../backend/backend.js';
import type { PlacedOp } from '../backend/ops.js';
import { Pass } from '../backend/pass.js';
import { isSparse } from '../checkpoint/model-config.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import { type DeviceBuffer, type Span, spanOf } from '../memory/buffers.js';
import { KvCache, type KvShape } from '../memory/kv-cache.js';
import { createModel } from '../model/open-model.js';
import { closeWorkspace, openWorkspace, planWorkspace, type Workspace } from '../model/workspace.js';
import { firstLayers, type LayerRoom, RoomSource } from './measured-layers.js';

/** What a decode pass takes of layers whose weights lie where they are computed with. */
export type LayerRates = Pick<
  MachineRates,
  | 'computeBytesPerSecond'
  | 'layerSeconds'
  | 'outsideSeconds'
  | 'setSeconds'
  | 'activeBytesPerSecond'
  | 'opSeconds'
  | 'moreOpSeconds'
>;

/** Where layers are measured. */
export interface LayerBench {
  readonly backend: Backend;
  readonly description: ModelDescription;
  readonly weights: Span;
  /** Layers of a submission, at most. */
  readonly layers: number;
  /** Positions in front of the token. */
  readonly context: number;
  readonly kvType: KvShape['type'];
  readonly activeShare: number;
  /** Least seconds that each of some lists takes. */
  readonly time: (lists: readonly (readonly PlacedOp[])[]) => Promise<readonly number[]>;
}

/** Wider sets tell what rows cost beside what a set does. */
const wider = 4;

/** Times decode layers as the model emits them: whole, their products alone, and with products over active rows. */
export async function layerRates(bench: LayerBench): Promise<LayerRates> {
  const { description, backend: allocator } = bench;
  const held: DeviceBuffer[] = [];
  const hold = (label: string, byteLength: number): Span => {
    held.push(allocator.allocate({ label, cause: 'workspace', byteLength: Math.ceil(byteLength / 4) * 4 }));
    return spanOf(held.at(-1)!);
  };
  const some = firstLayers(description, bench.layers);
  const { kvHeads, headDim, ffnSize, layers } = some.config;
  const capacity = bench.context + 1;
  const shape: KvShape = { layers, slots: 1, kvHeads, headDim, capacity, type: bench.kvType };
  const limits = { maxRows: 1, maxLogitsRows: 1, capacity, parallelism: bench.backend.parallelism };
  let workspace: Workspace | null = null;
  let cache: KvCache | null = null;
  try {
    workspace = openWorkspace(allocator, planWorkspace(some, limits));
    cache = new KvCache(allocator, shape);
    const room: LayerRoom = {
      weights: bench.weights,
      vector: hold('rates of vectors', 4 * Math.max(...some.vectors.map(({ width }) => width), 1)),
      pattern: null,
      active: hold('rates of active sets', 4 * (1 + ffnSize)),
      ids: hold('rates of ids', 4),
    };
    const patterns = [1, wider].map((times) => hold(`rates of activations ${times}`, 4 * ffnSize));
    return await measure({ bench, description: some, workspace, cache }, room, patterns);
  } finally {
    cache?.close();
    if (workspace !== null) closeWorkspace(allocator, workspace);
    for (const buffer of held) allocator.release(buffer);
  }
}

interface Parts {
  readonly bench: LayerBench;
  readonly description: ModelDescription;
  readonly workspace: Workspace;
  readonly cache: KvCache;
}

async function measure(parts: Parts, room: LayerRoom, patterns: readonly Span[]): Promise<LayerRates> {
  const { bench, description } = parts;
  const { layers, activation } = description.config;
  const dense = await emitted(parts, room);
  const whole = dense.ops.filter(isOfLayer);
  const products = whole.filter(({ op }) => op.kind === 'linear');
  // Half of the layers tell what a submission takes whatever is in it.
  const half = whole.filter(({ label }) => layerOf(label) < layers >> 1);
  const outside = dense.ops.filter((placed) => !isOfLayer(placed));
  const lists = [whole, products, half, [...dense.ops], outside];
  const sparse: { source: RoomSource; share: number }[] = [];
  if (isSparse(activation)) {
    for (const [index, pattern] of patterns.entries()) {
      const share = writePattern(bench.backend, pattern, bench.activeShare * (index === 0 ? 1 : wider));
      const { ops, source } = await emitted(parts, { ...room, pattern });
      sparse.push({ source, share });
      lists.push(ops.filter(isOfLayer));
    }
  }
  const times = await bench.time(lists.map((list) => Object.freeze(list)));
  const fixed = layers < fewestHalved ? 0 : fixedSeconds(times[0]!, times[2]!, (layers >> 1) / layers);
  const [all, linear, , everything, , few, many] = times.map((seconds) => seconds - fixed) as [
    number,
    number,
    number,
    number,
    number,
    number?,
    number?,
  ];
  const short = await submitSeconds(bench.backend, whole.slice(0, firstOps));
  const long = await submitSeconds(bench.backend, whole);
  const { denseBytes, neuronBytes } = dense.source;
  const computeBytesPerSecond = (denseBytes + neuronBytes) / linear;
  const common = {
    computeBytesPerSecond,
    layerSeconds: Math.max(0, all - linear) / layers,
    // Beside layers less than alone, but a difference of long times may be anything.
    outsideSeconds: Math.max(0, Math.min(everything - all, times[4]!)),
    opSeconds: short / Math.min(firstOps, whole.length),
    moreOpSeconds: Math.max(0, long - short) / Math.max(1, whole.length - firstOps),
  };
  const [narrow, wide] = sparse;
  if (narrow === undefined || wide === undefined) {
    return { ...common, setSeconds: 0, activeBytesPerSecond: computeBytesPerSecond };
  }
  const rows = ({ source, share }: { source: RoomSource; share: number }) => source.neuronBytes * share;
  const secondsAByte = (many! - few!) / (rows(wide) - rows(narrow));
  const activeBytesPerSecond = secondsAByte > 0 ? 1 / secondsAByte : computeBytesPerSecond;
  // Beside what the layers take whose products over neurons are left out at the rate of all.
  const others = Math.max(all, linear) - neuronBytes / computeBytesPerSecond;
  const started = few! - others - rows(narrow) / activeBytesPerSecond;
  return { ...common, setSeconds: Math.max(0, started) / narrow.source.sets, activeBytesPerSecond };
}

/** Halves of fewer layers tell little. */
const fewestHalved = 4;

function layerOf(label: string): number {
  return Number(/^layers\.(\d+)\./.exec(label)![1]);
}

/** What does not grow with the layers: at most what the shorter list would take were all of it so. */
function fixedSeconds(whole: number, part: number, share: number): number {
  return Math.max(0, Math.min((part - share * whole) / (1 - share), part / 2));
}

function isOfLayer({ label }: PlacedOp): boolean {
  return label.startsWith('layers.');
}

/** The ops of a pass over one token; they have run once. */
async function emitted({ bench, description, workspace, cache }: Parts, room: LayerRoom) {
  const source = new RoomSource(description, room);
  const model = createModel(description, source, workspace, cache, bench.backend);
  const pass = new Pass(bench.backend);
  const row = { slot: 0, position: bench.context, tokenId: 0 };
  await model.forward(pass, { kind: 'decode', rows: [row], logitsRows: [0] });
  await pass.flush();
  return { ops: pass.onlySubmission!, source };
}

/** Makes about so many neurons active, no run of them longer than chance has it; gives the share that came of it. */
function writePattern(backend: Backend, pattern: Span, share: number): number {
  const values = new Float32Array(pattern.byteLength / 4);
  let [state, active] = [1, 0];
  for (let index = 0; index < values.length; index += 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    if (state / 2 ** 32 >= share) continue;
    values[index] = 1;
    active += 1;
  }
  if (active === 0) [values[0], active] = [1, 1];
  backend.write(pattern, new Uint8Array(values.buffer));
  return active / values.length;
}

const settlingNs = 40_000_000n;
const fewestTurns = 3;
const mostTurns = 160;

/** Until the host can go on behind a submission of ops that were not recorded, once its code has settled. */
async function submitSeconds(backend: Backend, ops: readonly PlacedOp[]): Promise<number> {
  const times: number[] = [];
  const end = process.hrtime.bigint() + settlingNs;
  while (times.length < mostTurns && (times.length < fewestTurns || process.hrtime.bigint() < end)) {
    const list = [...ops];
    const began = process.hrtime.bigint();
    const running = backend.submit(list);
    times.push(Number(process.hrtime.bigint() - began) / 1e9);
    await running;
  }
  return settled(times);
}

/** The median of the later half of times. */
export function settled(times: readonly number[]): number {
  const later = times.slice(times.length >> 1).sort((a, b) => a - b);
  return later[later.length >> 1]!;
}
