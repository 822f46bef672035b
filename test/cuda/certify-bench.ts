import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import type { LowBitCopy, Op } from '../../src/backend/ops.js';
import { type LowBitName, lowBitFormats, lowBitNames } from '../../src/checkpoint/low-bit.js';
import { LowBitCopyWriter, roundDirections } from '../../src/checkpoint/low-bit-copy.js';
import { lowBitLayout, roundedInputLayout } from '../../src/checkpoint/low-bit-layout.js';
import { type Span, spanOf, subspan } from '../../src/memory/buffers.js';
import { BesideCopies, copyRoomBytes, type ReadTime } from './beside-copies.js';

const hidden = 2560;
const ffn = 10_240;
/** Neurons that differ, over and over: rounding 10,240 of them would take longer than everything else. */
const few = 512;
/** Copies in turn, so that the second-level cache holds none. */
const copies = 8;

/** A format, and directions. */
type CertifyVariant = readonly [LowBitName, number];
const everyVariant: readonly CertifyVariant[] = [
  ...lowBitNames.map((name) => [name, 0] as const),
  ['int6g32', 64],
];

/**
 * Certificates of the 2.7B shape by format, beside copies within the device: the rounded input, marks alone, marks with the rows
 * that they leave (from the device), and the norm in front of all of it.
 */
export async function benchCertify(
  gpu: CudaBackend,
  log: (line: string) => void,
  variants: readonly CertifyVariant[] = everyVariant,
): Promise<ReadTime[]> {
  const held: Span[] = [];
  const room = (byteLength: number): Span => {
    const span = spanOf(gpu.allocate({ label: 'bench', cause: 'workspace', byteLength }));
    held.push(span);
    return span;
  };
  const placed = (bytes: Uint8Array): Span => {
    const span = room(bytes.byteLength);
    gpu.write(span, bytes);
    return span;
  };
  const beside = new BesideCopies(gpu, { from: room(copyRoomBytes), to: room(copyRoomBytes) }, log);
  const time = (name: string, ops: readonly Op[], bytesEach: number) =>
    beside.time(
      name,
      ops.map((op) => ({ op, label: name })),
      copies,
      bytesEach,
    );
  try {
    const random = gaussian();
    const weights = Float32Array.from({ length: few * hidden }, () => random() / Math.sqrt(hidden));
    const part = halvesOf(weights);
    const stored = new Uint8Array(ffn * hidden * 2);
    for (let at = 0; at < stored.byteLength; at += part.byteLength) stored.set(part, at);
    const matrices = Array.from({ length: copies }, () => placed(stored));
    // 3.4 % of the neurons are active.
    const bias = placed(new Uint8Array(new Float32Array(ffn).fill(-1.825).buffer));
    const stream = placed(new Uint8Array(Float32Array.from({ length: 8 * hidden }, random).buffer));
    const x = room(8 * hidden * 4);
    const [gamma, marks, active] = [
      placed(new Uint8Array(new Float32Array(hidden).fill(1).buffer)),
      room(8 * ffn * 4),
      room((1 + ffn) * 4),
    ];
    for (const [name, directions] of variants) {
      const bytes = copyOf(name, directions, weights, random);
      const spans = Array.from({ length: copies }, () => placed(bytes.bytes));
      const copyAt = (span: Span): LowBitCopy => ({
        span,
        format: lowBitFormats[name],
        inputs: hidden,
        outputs: ffn,
        directions,
        directionExponent: bytes.exponent,
      });
      const text = `${name}${directions === 0 ? '' : ` with ${directions} directions`}`;
      const read = bytes.bytes.byteLength - directions * hidden * 2;
      for (const rows of directions === 0 ? [1, 4] : [1]) {
        const rounded = room(roundedInputLayout(rows, hidden, directions).byteLength);
        const norm: Op = {
          kind: 'norm',
          norm: 'layer',
          rows,
          width: hidden,
          epsilon: 1e-5,
          x: stream,
          gamma,
          beta: null,
          out: x,
        };
        const round = (span: Span): Op => ({
          kind: 'round-input',
          rows,
          x,
          copy: copyAt(span),
          out: rounded,
        });
        const certify = (span: Span): Op => ({
          kind: 'certify',
          rows,
          copy: copyAt(span),
          input: rounded,
          bias,
          threshold: 0,
          out: marks,
        });
        const withRows = (span: Span, index: number): Op[] => [
          certify(span),
          { kind: 'compact', rows, width: ffn, x: marks, active },
          {
            kind: 'active-outputs',
            rows,
            x,
            inputs: hidden,
            active,
            listBegin: 0,
            listEnd: -1,
            slots: null,
            matrix: { span: matrices[index]!, type: 'f16', layout: 'output-major', rowStride: hidden },
            out: marks,
            outStride: ffn,
            bias,
          },
          { kind: 'activate', count: rows * ffn, activation: 'relu', threshold: 0, x: marks },
        ];
        const all = spans.flatMap((span, index) => [norm, round(span), ...withRows(span, index)]);
        // More neurons than a GPU has on their way at once, which the contract's cases are too small for.
        const whole = all.slice(0, all.length / copies);
        const results: Buffer[] = [];
        for (const lists of [[whole], whole.map((op) => [op])]) {
          for (const ops of lists) await gpu.submit(ops.map((op) => ({ op, label: text })));
          const [outputs, set] = [
            await gpu.read(subspan(marks, 0, rows * ffn * 4)),
            await gpu.read(subspan(active, 0, 4)),
          ];
          results.push(Buffer.concat([outputs, set]));
        }
        if (!results[0]!.equals(results[1]!)) {
          throw new Error(`${text}, ${rows} rows: ops together and one by one give other bytes`);
        }
        await time(`norm, round, certify and rows, ${text}, ${rows} rows`, all, read);
        const counted = await gpu.read(subspan(active, 0, 4));
        log(
          `  ${new Uint32Array(counted.slice().buffer)[0]} of ${ffn} neurons uncertain in some of ${rows} rows`,
        );
        await time(`round, ${text}, ${rows} rows`, spans.map(round), rows * hidden * 4);
        await time(`certify, ${text}, ${rows} rows`, spans.map(certify), read);
        const marked = spans.flatMap((span) => [norm, round(span), certify(span)]);
        await time(`norm, round and certify, ${text}, ${rows} rows`, marked, read);
        await time(`certify and rows, ${text}, ${rows} rows`, spans.flatMap(withRows), read);
      }
      for (const { buffer } of held.splice(held.length - copies - (directions === 0 ? 2 : 1)))
        gpu.release(buffer);
    }
  } finally {
    for (const { buffer } of held) gpu.release(buffer);
  }
  return beside.times;
}

function copyOf(
  name: LowBitName,
  directions: number,
  weights: Float32Array,
  random: () => number,
): { bytes: Uint8Array; exponent: number } {
  const rows = Array.from({ length: directions }, () =>
    Float64Array.from({ length: hidden }, () => random() / Math.sqrt(hidden)),
  );
  const basis = directions === 0 ? null : roundDirections(rows, hidden);
  const part = new LowBitCopyWriter(hidden, few, lowBitFormats[name], basis);
  for (let neuron = 0; neuron < few; neuron += 1) {
    part.add(neuron, weights.subarray(neuron * hidden, (neuron + 1) * hidden));
  }
  const layout = lowBitLayout(lowBitFormats[name], hidden, ffn, directions);
  const bytes = new Uint8Array(layout.byteLength);
  for (const section of ['records', 'codes', 'high', 'groupScales', 'components'] as const) {
    const { byteOffset, byteLength } = part.layout[section];
    const one = part.bytes.subarray(byteOffset, byteOffset + byteLength);
    for (let at = 0; at < layout[section].byteLength; at += byteLength || 1)
      bytes.set(one, layout[section].byteOffset + at);
  }
  const { byteOffset, byteLength } = part.layout.directions;
  bytes.set(part.bytes.subarray(byteOffset, byteOffset + byteLength), layout.directions.byteOffset);
  return { bytes, exponent: basis?.exponent ?? 0 };
}

/** Normal numbers of deviation 1, nearly: sums of uniform ones. */
function gaussian(): () => number {
  let state = 5;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  return () => (uniform() + uniform() + uniform() + uniform()) * Math.sqrt(3);
}

function halvesOf(weights: Float32Array): Uint8Array {
  const halves = new Uint16Array(weights.length);
  const words = new Uint32Array(weights.buffer, weights.byteOffset, weights.length);
  for (let i = 0; i < halves.length; i += 1) {
    const bits = words[i]!;
    const exponent = ((bits >>> 23) & 255) - 112;
    const magnitude = exponent <= 0 ? 0 : (exponent << 10) | ((bits >>> 13) & 0x3ff);
    halves[i] = ((bits >>> 16) & 0x8000) | magnitude;
  }
  return new Uint8Array(halves.buffer);
}
