import type { LowBitCopy, Op } from '../../../src/backend/ops.js';
import { widenStored } from '../../../src/base/half.js';
import type { StoredType } from '../../../src/base/stored-type.js';
import { type LowBitFormat, lowBitFormats, lowBitNames } from '../../../src/checkpoint/low-bit.js';
import { LowBitCopyWriter, roundDirections } from '../../../src/checkpoint/low-bit-copy.js';
import { lowBitLayout, roundedInputLayout } from '../../../src/checkpoint/low-bit-layout.js';
import { type CaseGroup, type ContractCase, oddSizes, rowCounts, storedTypes } from './case.js';
import { CaseRandom, type Flavor } from './case-random.js';
import type { Workbench } from './workbench.js';

interface CertifyShape {
  readonly format: LowBitFormat;
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
  readonly directions: number;
  readonly flavor: Flavor;
  /** Codes and scales of any value, not only those that rounding gives. */
  readonly anyCodes?: boolean;
}

/** `round-input` and `certify`: what they leave is compared byte by byte. */
export function certifyGroups(): CaseGroup[] {
  return [
    ...lowBitNames.map((name) => ({
      name: `certify, ${name}`,
      cases: shapes(lowBitFormats[name]).map(certifyCase),
    })),
    ...storedTypes.map((type) => ({
      name: `certify with rows, ${type}`,
      cases: rowShapes(type).map(certifiedRowsCase),
    })),
    {
      name: 'certify one row of a width that is a multiple of 512',
      cases: oneRowShapes().map(certifiedRowsCase),
    },
  ];
}

/** A decode pass of a layer with certificates, from its norm to its second projection. */
interface RowsShape {
  readonly type: StoredType;
  readonly format: LowBitFormat;
  readonly rows: number;
  readonly inputs: number;
  readonly outputs: number;
  readonly directions: number;
  /** The norm in front, the activation, and the product behind are there. */
  readonly norm: boolean;
  readonly activation: 'relu' | 'relu2' | 'fatrelu' | 'silu' | null;
  readonly second: 'own set' | 'same set' | null;
}

function rowShapes(type: StoredType): RowsShape[] {
  const sizes = [8, 24, 136, 264, 512, 520, 1288, 4104, 33, 12, 130, 70];
  return sizes.map((inputs, i) => ({
    type,
    format: lowBitFormats[lowBitNames[i % lowBitNames.length]!],
    rows: [1, 2, 3, 4, 5][i % 5]!,
    inputs,
    outputs: inputs > 4000 ? 40 : [5, 37, 150, 64, 1, 300, 128][i % 7]!,
    directions: [0, 0, 16, 64][i % 4]!,
    norm: i % 3 !== 1,
    activation: (['relu', 'fatrelu', 'relu2', null, 'silu'] as const)[i % 5]!,
    second: (['own set', 'same set', null] as const)[(i >> 1) % 3]!,
  }));
}

/** Every format, with the least and the most inputs that a lane of a GPU keeps. */
function oneRowShapes(): RowsShape[] {
  return lowBitNames.flatMap((name, i) =>
    [
      { inputs: 512, outputs: [150, 37, 131, 1, 264][i]! },
      { inputs: 2560, outputs: 24 },
      { inputs: [5120, 3072, 4096, 3584, 5120][i]!, outputs: 7 },
    ].map(({ inputs, outputs }, j) => ({
      type: storedTypes[(i + j) % storedTypes.length]!,
      format: lowBitFormats[name],
      rows: 1,
      inputs,
      outputs,
      directions: 0,
      norm: (i + j) % 3 !== 2,
      activation: (['relu', 'fatrelu', 'relu2', null] as const)[(i + j) % 4]!,
      second: (['own set', 'same set', null] as const)[j]!,
    })),
  );
}

function certifiedRowsCase(shape: RowsShape): ContractCase {
  const { type, format, rows, inputs, outputs, directions, norm, activation, second } = shape;
  const parts = [norm ? 'norm' : null, activation, second].filter((part) => part !== null);
  return {
    name: `${rows} rows, ${inputs} inputs, ${outputs} neurons of ${format.bits} bits, ${directions} directions, ${parts.join(', ')}`,
    build: (bench) => {
      const { random } = bench;
      const weights = random.weights(type, inputs * outputs, 'plain');
      const copy = makeCopy(new CaseRandom(random.word(), 0), shape, widenStored(type, weights));
      // Low enough that some neurons are certified, others not.
      const bias = bench.floats(
        'bias',
        random.floats(outputs, 'plain').map((value) => value - Math.sqrt(inputs) / 2),
      );
      const x = bench.floats('x', random.floats(rows * inputs, 'plain'));
      const given: LowBitCopy = {
        span: bench.storedAligned('copy', 'f16', copy.bytes),
        format,
        inputs,
        outputs,
        directions,
        directionExponent: copy.exponent,
      };
      const rounded = bench.storedAligned(
        'rounded',
        'f16',
        random.bytes(roundedInputLayout(rows, inputs, directions).byteLength),
      );
      const ops: Op[] = [];
      if (norm) {
        const from = bench.floats('stream', random.floats(rows * inputs, 'plain'));
        const [gamma, beta] = [random.floats(inputs, 'plain'), random.floats(inputs, 'plain')];
        ops.push({
          kind: 'norm',
          norm: random.pick(['layer', 'rms']),
          rows,
          width: inputs,
          epsilon: 1e-5,
          x: from,
          gamma: bench.floats('gamma', gamma),
          beta: random.chance(0.5) ? bench.floats('beta', beta) : null,
          out: x,
        });
      }
      ops.push(...certifyOps(bench, { rows, copy: given, rounded, bias, x }));
      const marks = (ops.at(-1) as Extract<Op, { kind: 'certify' }>).out;
      const active = bench.active('set', Math.max(outputs, 1), null);
      ops.push(
        { kind: 'compact', rows, width: outputs, x: marks, active },
        {
          kind: 'active-outputs',
          rows,
          x,
          inputs,
          active,
          listBegin: 0,
          listEnd: -1,
          slots: null,
          matrix: {
            span: bench.storedAligned('first', type, weights),
            type,
            layout: 'output-major',
            rowStride: inputs,
          },
          out: marks,
          outStride: outputs,
          bias,
        },
      );
      const count = rows * outputs;
      if (activation !== null) ops.push({ kind: 'activate', count, activation, threshold: 0.01, x: marks });
      if (second === null) return ops;
      const set = second === 'same set' ? active : bench.active('second set', outputs, null);
      ops.push(
        { kind: 'compact', rows, width: outputs, x: marks, active: set },
        {
          kind: 'active-inputs',
          rows,
          x: marks,
          xStride: outputs,
          active: set,
          listBegin: 0,
          listEnd: -1,
          slots: null,
          outputs: 37,
          matrix: {
            span: bench.storedAligned('second', type, random.weights(type, outputs * 37, 'plain')),
            type,
            layout: 'input-major',
            rowStride: 37,
          },
          out: bench.room('out', rows * 37),
          continues: false,
          bias: null,
          residual: null,
        },
      );
      return ops;
    },
  };
}

function shapes(format: LowBitFormat): CertifyShape[] {
  const flavors = ['plain', 'wide', 'tiny', 'edges', 'non-finite', 'zero', 'sparse'] as const;
  const flavor = (index: number): Flavor => flavors[index % flavors.length]!;
  const directions = (index: number): number => [0, 16, 0, 64, 32, 0, 48][index % 7]!;
  return [
    ...oddSizes.map((inputs, i) => ({
      format,
      rows: 1 + (i % 3),
      inputs,
      outputs: 37,
      directions: directions(i),
      flavor: flavor(i),
    })),
    ...oddSizes.map((outputs, i) => ({
      format,
      rows: 1 + (i % 2),
      inputs: 70 + 13 * i,
      outputs,
      directions: directions(i + 3),
      flavor: flavor(i + 2),
      anyCodes: true,
    })),
    ...rowCounts.map((rows, i) => ({
      format,
      rows,
      inputs: 131,
      outputs: 67,
      directions: directions(i),
      flavor: 'plain' as const,
    })),
    { format, rows: 2, inputs: 4500, outputs: 19, directions: 16, flavor: 'plain', anyCodes: true },
    { format, rows: 1, inputs: 2048, outputs: 300, directions: 0, flavor: 'plain' },
  ];
}

function certifyCase(shape: CertifyShape): ContractCase {
  const { format, rows, inputs, outputs, directions, flavor, anyCodes = false } = shape;
  // Backends take a case one after another, so the copy of the last one serves all of them.
  let made: { seed: number; bytes: Uint8Array; exponent: number } | null = null;
  return {
    name: `${rows} rows, ${inputs} inputs, ${outputs} neurons, ${directions} directions, ${flavor}${anyCodes ? ', any codes' : ''}`,
    build: (bench) => {
      const { random } = bench;
      const x = random.floats(rows * inputs, flavor);
      const seed = random.word();
      if (made?.seed !== seed) made = { seed, ...makeCopy(new CaseRandom(seed, 0), shape) };
      const bias = random.chance(0.7) ? bench.floats('bias', random.floats(outputs, 'plain')) : null;
      const copy: LowBitCopy = {
        span: bench.storedAligned('copy', 'f16', made.bytes),
        format,
        inputs,
        outputs,
        directions,
        directionExponent: made.exponent,
      };
      const rounded = bench.storedAligned(
        'rounded',
        'f16',
        random.bytes(roundedInputLayout(rows, inputs, directions).byteLength),
      );
      return certifyOps(bench, { rows, copy, rounded, bias, x: bench.floats('x', x) });
    },
  };
}

function certifyOps(
  bench: Workbench,
  given: Pick<Extract<Op, { kind: 'certify' }>, 'rows' | 'copy' | 'bias'> & {
    readonly rounded: LowBitCopy['span'];
    readonly x: LowBitCopy['span'];
  },
): Op[] {
  const { rows, copy, rounded, bias, x } = given;
  const threshold = bench.random.pick([0, 0.01, 1]);
  return [
    { kind: 'round-input', rows, x, copy, out: rounded },
    {
      kind: 'certify',
      rows,
      copy,
      input: rounded,
      bias,
      threshold,
      out: bench.room('marks', rows * copy.outputs),
    },
  ];
}

function makeCopy(
  random: CaseRandom,
  {
    format,
    inputs,
    outputs,
    directions,
    anyCodes = false,
  }: Pick<CertifyShape, 'format' | 'inputs' | 'outputs' | 'directions' | 'anyCodes'>,
  weights: Float32Array | null = null,
): { bytes: Uint8Array; exponent: number } {
  const length = Math.sqrt(inputs);
  const basis =
    directions === 0
      ? null
      : roundDirections(
          Array.from({ length: directions }, () =>
            Float64Array.from({ length: inputs }, () => (2 * random.uniform() - 1) / length),
          ),
          inputs,
        );
  const writer = new LowBitCopyWriter(inputs, outputs, format, basis);
  for (let neuron = 0; neuron < outputs; neuron += 1) {
    const row =
      weights?.subarray(neuron * inputs, (neuron + 1) * inputs) ??
      random.floats(inputs, random.pick(['plain', 'wide', 'tiny', 'edges', 'sparse']));
    writer.add(neuron, row);
  }
  if (anyCodes) {
    const layout = lowBitLayout(format, inputs, outputs, directions);
    for (const { byteOffset, byteLength } of [layout.codes, layout.high, layout.groupScales]) {
      writer.bytes.set(random.bytes(byteLength), byteOffset);
    }
  }
  return { bytes: writer.bytes, exponent: basis?.exponent ?? 0 };
}
