import type { AttentionOp, KvLayer, Op } from '../../../src/backend/ops.js';
import { type CaseGroup, type ContractCase, rowCounts } from './case.js';
import type { CaseRandom, Flavor } from './case-random.js';
import type { Workbench } from './workbench.js';

interface AttentionShape {
  readonly type: 'f16' | 'f32';
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly capacity: number;
  readonly slots: number;
  readonly flavor: Flavor;
}

export function attentionGroups(): CaseGroup[] {
  return (['f16', 'f32'] as const).map((type) => ({
    name: `store-kv and attention, ${type} KV`,
    cases: shapes(type).map(attentionCase),
  }));
}

function shapes(type: 'f16' | 'f32'): AttentionShape[] {
  const base: AttentionShape = {
    type,
    rows: 1,
    heads: 4,
    kvHeads: 2,
    headDim: 20,
    capacity: 150,
    slots: 3,
    flavor: 'plain',
  };
  return [
    ...[1, 2, 3, 7, 8, 20, 64, 80, 127, 128, 129, 130, 257].map((headDim) => ({ ...base, headDim, rows: 2 })),
    ...rowCounts.map((rows) => ({ ...base, rows })),
    ...[1, 2, 5, 16, 127, 128, 129, 255, 256, 257, 400].map((capacity) => ({ ...base, capacity, rows: 3 })),
    ...[1, 2, 3, 6].map((kvHeads) => ({ ...base, heads: 6, kvHeads, rows: 5 })),
    ...(['sparse', 'tiny', 'wide', 'non-finite'] as const).map((flavor) => ({ ...base, rows: 5, flavor })),
    { ...base, heads: 1, kvHeads: 1, slots: 1, rows: 33 },
    // Few rows over more blocks of 128 positions than a cluster of a GPU has blocks of threads, aligned and not.
    ...[640, 1024, 1027, 2200].map((capacity) => ({ ...base, capacity, rows: 2, slots: 1 })),
    { ...base, heads: 2, headDim: 80, capacity: 1160, slots: 1, flavor: 'non-finite' },
    // Tiles of 32 rows of one slot, and tiles that hold several slots.
    ...[31, 32, 64, 65].map((rows) => ({ ...base, heads: 2, headDim: 80, capacity: 264, rows, slots: 1 })),
    ...[1, 64, 128, 129].map((headDim) => ({
      ...base,
      heads: 2,
      headDim,
      capacity: 200,
      rows: 40,
      slots: 2,
    })),
    { ...base, heads: 2, capacity: 130, rows: 97, slots: 1, flavor: 'non-finite' },
    { ...base, heads: 2, capacity: 513, rows: 36, slots: 1 },
  ];
}

function attentionCase(shape: AttentionShape): ContractCase {
  const { rows, heads, kvHeads, headDim, capacity, slots, flavor } = shape;
  return {
    name: `${rows} rows, ${heads} heads on ${kvHeads}, head dimension ${headDim}, ${slots} slots of ${capacity}, ${flavor}`,
    build: (bench) => attentionOps(bench, shape),
  };
}

function attentionOps(bench: Workbench, shape: AttentionShape): Op[] {
  const { random } = bench;
  const { type, rows, heads, kvHeads, headDim, capacity, slots, flavor } = shape;
  const elements = slots * kvHeads * capacity * headDim;
  const stored = (): Uint8Array => random.weights(type, elements, flavor === 'wide' ? 'plain' : flavor);
  const cache: KvLayer = {
    type,
    keys: bench.cache('keys', type, stored()),
    values: bench.cache('values', type, stored()),
    slots,
    kvHeads,
    headDim,
    capacity,
  };
  const positions = bench.integers('positions', places(random, shape));
  const attention: AttentionOp = {
    kind: 'attention',
    rows,
    heads,
    positions,
    scale: random.pick([1 / Math.sqrt(headDim), 1, 0.1]),
    query: bench.floats('query', random.floats(rows * heads * headDim, flavor)),
    cache,
    scratch: bench.scratch('scratch', bench.backend.parallelism * capacity),
    out: bench.room('out', rows * heads * headDim),
  };
  const fresh = (label: string) =>
    // Beyond the range of F16 a finite value is an error, which has its own test.
    bench.floats(label, random.floats(rows * kvHeads * headDim, flavor === 'wide' ? 'plain' : flavor));
  return [
    { kind: 'store-kv', rows, positions, keys: fresh('new keys'), values: fresh('new values'), cache },
    attention,
  ];
}

/** (slot, position) of each row: a run of consecutive positions in each slot, taken in mixed order, no place twice. */
function places(random: CaseRandom, { rows, slots, capacity }: AttentionShape): number[] {
  const result: number[] = [];
  const next = Array.from({ length: slots }, () => random.below(Math.max(1, capacity - rows + 1)));
  for (let t = 0; t < rows; t++) {
    const free = next.flatMap((position, slot) => (position < capacity ? [slot] : []));
    const slot = random.pick(free);
    result.push(slot, next[slot]!);
    next[slot]! += 1;
  }
  return result;
}
