import type { LowBitCopy, Op } from '../../../src/backend/ops.js';
import { type LowBitFormat, lowBitFormats, lowBitNames } from '../../../src/checkpoint/low-bit.js';
import { LowBitCopyWriter, roundDirections } from '../../../src/checkpoint/low-bit-copy.js';
import { lowBitLayout, roundedInputLayout } from '../../../src/checkpoint/low-bit-layout.js';
import { type CaseGroup, type ContractCase, oddSizes, rowCounts } from './case.js';
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
  return lowBitNames.map((name) => ({
    name: `certify, ${name}`,
    cases: shapes(lowBitFormats[name]).map(certifyCase),
  }));
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
        span: bench.stored('copy', 'f16', made.bytes),
        format,
        inputs,
        outputs,
        directions,
        directionExponent: made.exponent,
      };
      const rounded = bench.stored(
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
  { format, inputs, outputs, directions, anyCodes = false }: CertifyShape,
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
    writer.add(neuron, random.floats(inputs, random.pick(['plain', 'wide', 'tiny', 'edges', 'sparse'])));
  }
  if (anyCodes) {
    const layout = lowBitLayout(format, inputs, outputs, directions);
    for (const { byteOffset, byteLength } of [layout.codes, layout.high, layout.groupScales]) {
      writer.bytes.set(random.bytes(byteLength), byteOffset);
    }
  }
  return { bytes: writer.bytes, exponent: basis?.exponent ?? 0 };
}
