import type { Op } from '../../../src/backend/ops.js';
import { emptyRowIndex, freshPlace, type RowIndex, rowIndexLayout } from '../../../src/backend/row-index.js';
import type { StoredType } from '../../../src/base/stored-type.js';
import { type CaseGroup, type ContractCase, oddSizes, storedTypes } from './case.js';
import type { CaseRandom } from './case-random.js';
import type { Workbench } from './workbench.js';

interface HeldShape {
  readonly type: StoredType;
  readonly rows: number;
  readonly neurons: number;
  readonly other: number; // outputs of held-inputs, inputs of held-outputs
  readonly places: number;
  readonly replaces: boolean;
  readonly activeShare: number;
}

/** Ops over rows that lie in places on a device: for backends with a host tier alone. */
export function heldGroups(): CaseGroup[] {
  return [
    { name: 'retain-rows', cases: lookups().map(lookupCase) },
    ...storedTypes.map((type) => ({ name: `guess-rows, ${type}`, cases: shapes(type).map(guessCase) })),
    ...storedTypes.flatMap((type) => [
      { name: `held-inputs, ${type}`, cases: shapes(type).map((shape) => productCase(shape, 'held-inputs')) },
      {
        name: `held-outputs, ${type}`,
        cases: shapes(type).map((shape) => productCase(shape, 'held-outputs')),
      },
    ]),
  ];
}

function lookups(): Omit<HeldShape, 'type' | 'rows' | 'other'>[] {
  const sizes = [...oddSizes, 1000, 2500, 5000];
  return sizes.flatMap((neurons, index) =>
    [1, Math.ceil(neurons / 7), neurons, neurons + 3].map((places) => ({
      neurons,
      places,
      replaces: index % 4 !== 3,
      activeShare: [0.04, 0.3, 0.9, 0][index % 4]!,
    })),
  );
}

function shapes(type: StoredType): HeldShape[] {
  const common = { type, replaces: true };
  return [
    ...oddSizes.map((neurons, i) => ({
      ...common,
      rows: 1 + (i % 3),
      neurons,
      other: 37,
      places: 1 + (i % 5),
      activeShare: [0.04, 0.3, 1][i % 3]!,
      replaces: i % 2 === 0,
    })),
    ...oddSizes.map((other, i) => ({
      ...common,
      rows: 1 + (i % 4),
      neurons: 300,
      other,
      places: 60,
      activeShare: [0.04, 0.3][i % 2]!,
      replaces: i % 3 !== 0,
    })),
    ...[1, 2, 3, 4, 5, 8].map((rows) => ({
      ...common,
      rows,
      neurons: 385,
      other: 131,
      places: 100,
      activeShare: 0.1,
    })),
    { ...common, rows: 1, neurons: 2048, other: 520, places: 128, activeShare: 0.04 },
    { ...common, rows: 1, neurons: 2048, other: 520, places: 700, activeShare: 0.04, replaces: false },
  ];
}

/** One lookup after another: what the first changes is what the second finds. */
function lookupCase(shape: Omit<HeldShape, 'type' | 'rows' | 'other'>): ContractCase {
  const { neurons, places, replaces, activeShare } = shape;
  return {
    name: `${neurons} neurons, ${places} places, ${replaces ? 'replacing' : 'fixed'}, ${activeShare} active`,
    build: (bench) => {
      const index = indexFor(bench, shape);
      const ops: Op[] = [];
      for (let turn = 0; turn < 3; turn += 1) {
        const active = bench.active(`active ${turn}`, neurons, chosen(bench.random, neurons, activeShare));
        const hits = bench.integers(`hits ${turn}`, [-1]);
        ops.push({ kind: 'retain-rows', active, index, hits });
      }
      return ops;
    },
  };
}

/** Guesses from a set, other ops beside them, then what the guess is for; a second pass guesses from the set of the first. */
function guessCase(shape: HeldShape): ContractCase {
  const { type, rows, neurons, other, places, activeShare } = shape;
  return {
    name: `${rows} rows, ${neurons} neurons, ${other} other, ${places} places, ${activeShare} active`,
    build: (bench) => {
      const { random } = bench;
      const rowStride = other + random.pick([0, 1, 5, (8 - (other % 8)) % 8]);
      const index = indexFor(bench, { neurons, places, replaces: false });
      const stored = (label: string, count: number) => {
        const bytes = random.weights(type, count * rowStride, 'plain');
        const aligned = random.chance(0.5);
        return aligned ? bench.storedAligned(label, type, bytes) : bench.stored(label, type, bytes);
      };
      const matrix = { span: stored('matrix', neurons), type, layout: 'input-major', rowStride } as const;
      const held = stored('held', places);
      const set = bench.active('set', neurons, chosen(random, neurons, activeShare));
      const sums = bench.floats('sums', random.floats(64, 'plain'));
      const ops: Op[] = [];
      for (let turn = 0; turn < 2; turn += 1) {
        const x = bench.floats(`x ${turn}`, activations(random, shape));
        const guessed = bench.integers(`guessed ${turn}`, [-1]);
        ops.push({ kind: 'guess-rows', set, index, held, matrix, guessed });
        ops.push({ kind: 'add', count: 64, a: sums, b: sums, out: sums });
        ops.push({ kind: 'compact', rows, width: neurons, x, active: set });
        ops.push({ kind: 'retain-rows', active: set, index, hits: bench.integers(`hits ${turn}`, [-1]) });
        const out = bench.room(`out ${turn}`, rows * other);
        const product = { rows, x, active: set, index, held, outputs: other, matrix, out } as const;
        ops.push({ kind: 'held-inputs', ...product, bias: null, residual: null });
      }
      return ops;
    },
  };
}

function productCase(shape: HeldShape, kind: 'held-inputs' | 'held-outputs'): ContractCase {
  const { rows, neurons, other, places, replaces, activeShare } = shape;
  return {
    name: `${rows} rows, ${neurons} neurons, ${other} other, ${places} places, ${replaces ? 'replacing' : 'fixed'}, ${activeShare} active`,
    build: (bench) => productOps(bench, shape, kind),
  };
}

/** Two passes over one index and its places. */
function productOps(bench: Workbench, shape: HeldShape, kind: 'held-inputs' | 'held-outputs'): Op[] {
  const { type, rows, neurons, other, places } = shape;
  const { random } = bench;
  const aligned = random.chance(0.5);
  const rowStride = aligned ? Math.ceil(other / 8) * 8 : other + random.pick([0, 1, 5]);
  const index = indexFor(bench, shape);
  const stored = (label: string, count: number) => {
    const bytes = random.weights(type, count * rowStride, 'plain');
    return aligned ? bench.storedAligned(label, type, bytes) : bench.stored(label, type, bytes);
  };
  const span = stored('matrix', neurons);
  const held = stored('held', places);
  const ops: Op[] = [];
  for (let turn = 0; turn < 2; turn += 1) {
    const values = activations(random, shape);
    const x = bench.floats(`x ${turn}`, values);
    const active = bench.active(`active ${turn}`, neurons, null);
    ops.push({ kind: 'compact', rows, width: neurons, x, active });
    ops.push({ kind: 'retain-rows', active, index, hits: bench.integers(`hits ${turn}`, [-1]) });
    const matrix = { span, type, rowStride };
    const biased = random.chance(0.5);
    if (kind === 'held-inputs') {
      ops.push({
        kind,
        rows,
        x,
        active,
        index,
        held,
        outputs: other,
        matrix: { ...matrix, layout: 'input-major' },
        out: bench.room(`out ${turn}`, rows * other),
        bias: biased ? bench.floats(`bias ${turn}`, random.floats(other, 'plain')) : null,
        residual: random.chance(0.5)
          ? bench.floats(`residual ${turn}`, random.floats(rows * other, 'plain'))
          : null,
      });
      continue;
    }
    const outStride = neurons + random.below(4);
    ops.push({
      kind,
      rows,
      x: bench.floats(`input ${turn}`, random.floats(rows * other, 'plain')),
      inputs: other,
      active,
      index,
      held,
      matrix: { ...matrix, layout: 'output-major' },
      out: bench.room(`out ${turn}`, rows * outStride),
      outStride,
      bias: biased ? bench.floats(`bias ${turn}`, random.floats(neurons, 'plain')) : null,
    });
  }
  return ops;
}

/** Activations [rows, neurons]; the others are zero, of either sign. */
function activations(random: CaseRandom, { rows, neurons, activeShare }: HeldShape): Float32Array {
  const x = random.floats(rows * neurons, 'zero');
  for (let at = 0; at < x.length; at += 1) if (random.chance(activeShare)) x[at] = random.value('plain') || 1;
  return x;
}

/** An index that holds some rows already, in an order of their own, a few of them fresh. */
function indexFor(
  bench: Workbench,
  { neurons, places, replaces }: Pick<HeldShape, 'neurons' | 'places' | 'replaces'>,
): RowIndex {
  const { random } = bench;
  const shape = { neurons, places, replaces };
  const words = replaces ? emptyRowIndex(shape) : new Uint32Array(neurons);
  const { neuronOf, order } = rowIndexLayout(shape);
  const free = shuffled(random, places);
  if (replaces) words.set(free, order);
  for (const neuron of chosen(random, neurons, 0.3)) {
    const place = free.pop();
    if (place === undefined) break;
    words[neuron] = place + 1 + (replaces && random.chance(0.2) ? freshPlace : 0);
    if (replaces) words[neuronOf + place] = neuron + 1;
  }
  return {
    ...shape,
    span: bench.integers(
      'index',
      Array.from(words, (word) => word | 0),
    ),
  };
}

function chosen(random: CaseRandom, width: number, share: number): number[] {
  return Array.from({ length: width }, (_, index) => index).filter(() => random.chance(share));
}

function shuffled(random: CaseRandom, count: number): number[] {
  const order = Array.from({ length: count }, (_, index) => index);
  for (let last = count - 1; last > 0; last -= 1) {
    const other = random.below(last + 1);
    [order[last], order[other]] = [order[other]!, order[last]!];
  }
  return order;
}
