import { expect, test } from 'vitest';
import { nativeLowBitRows } from '../../src/backend/cpu/low-bit-rows.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { widenStored } from '../../src/base/half.js';
import { type StoredType, storedBytes } from '../../src/base/stored-type.js';
import { lowBitFormats, lowBitNames } from '../../src/checkpoint/low-bit.js';
import { LowBitCopyWriter, roundDirections } from '../../src/checkpoint/low-bit-copy.js';
import { openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { uniformLowBit } from '../../src/checkpoint/low-bit-plan.js';
import { describe as describeModel, optConfig } from '../acquire/support/opt-shape.js';
import { writePrepared } from '../acquire/support/prepared-file.js';
import { CaseRandom } from './contract/case-random.js';

const seed = 20261204;
const flavors = ['plain', 'wide', 'tiny', 'edges', 'sparse', 'zero'] as const;

/** Finite bits of a type, [rows, inputs]: those of random floats, cut to its width. */
function storedRows(random: CaseRandom, type: StoredType, rows: number, inputs: number): Uint8Array {
  const floats = new Float32Array(rows * inputs);
  for (let row = 0; row < rows; row += 1)
    floats.set(random.floats(inputs, random.pick(flavors)), row * inputs);
  if (type === 'f32') return new Uint8Array(floats.buffer);
  const bits = new Uint32Array(floats.buffer);
  const words = Uint16Array.from(bits, (word) => (type === 'bf16' ? word >>> 16 : anyHalf(word)));
  return new Uint8Array(words.buffer);
}

/** Any finite half, subnormal ones among them. */
function anyHalf(word: number): number {
  const bits = (word >>> 13) & 0xffff;
  return (bits & 0x7c00) === 0x7c00 ? bits & 0x83ff : bits;
}

test.skipIf(!nativeStatus().available).each(lowBitNames)(
  `%s: native rows are those of the writer, byte by byte, whatever instructions make them (seed ${seed})`,
  async (name) => {
    const format = lowBitFormats[name];
    for (let index = 0; index < 24; index += 1) {
      const random = new CaseRandom(seed, index);
      const inputs = random.pick([1, 31, 33, 64, 130, 300]);
      const outputs = random.pick([1, 2, 7, 18]);
      const type = random.pick(['f32', 'f16', 'bf16'] as const);
      const count = random.pick([0, 16, 48, 64]);
      const rows = Array.from({ length: count }, () => Float64Array.from(random.floats(inputs, 'plain')));
      const directions = count === 0 ? null : roundDirections(rows, inputs);
      const weights = storedRows(random, type, outputs, inputs);
      const expected = new LowBitCopyWriter(inputs, outputs, format, directions);
      const values = widenStored(type, weights);
      for (let n = 0; n < outputs; n += 1) expected.add(n, values.subarray(n * inputs, (n + 1) * inputs));
      const { layout } = expected;
      for (const set of nativeStatus().instructionSets) {
        const copy = new LowBitCopyWriter(inputs, outputs, format, directions).bytes;
        const make = nativeLowBitRows(set)!;
        const middle = Math.floor(outputs / 2);
        const part = (begin: number, end: number) => {
          const rowBytes = inputs * storedBytes[type];
          const own = weights.slice(begin * rowBytes, end * rowBytes);
          return make({ inputs, format, directions, layout, type, weights: own, begin, end, copy });
        };
        await Promise.all([part(0, middle), part(middle, outputs)]);
        const wrong = copy.findIndex((byte, at) => byte !== expected.bytes[at]);
        expect(wrong, `case ${index}, ${set}, ${type}, [${outputs}, ${inputs}], ${count} directions`).toBe(
          -1,
        );
      }
    }
  },
);

test.skipIf(!nativeStatus().available)(
  'copies on disk have one digest, whoever makes their rows',
  async () => {
    const shape = { hiddenSize: 40, ffnSize: 700, layers: 2, heads: 2, vocabSize: 30, maxPositions: 20 };
    const description = describeModel(optConfig(shape), 'f16');
    const directions = roundDirections(
      Array.from({ length: 16 }, (_, j) => new Float64Array(40).fill(1, j, j + 1)),
      40,
    );
    const plain = uniformLowBit(description, () => true, 'int5g32');
    const choices = new Map(Array.from(plain.choices, ([id, choice]) => [id, { ...choice, directions }]));
    const digests: string[] = [];
    for (const makeRows of [undefined, nativeLowBitRows()]) {
      const prepared = writePrepared(description, 7, () => 'mixed');
      for (const plan of [plain, { name: 'directed', choices }]) {
        const model = await openLowBit(prepared, plan, { makeRows });
        digests.push(model.manifestDigest);
        await model.close();
      }
      await prepared.close();
    }
    expect(digests.slice(2)).toEqual(digests.slice(0, 2));
  },
);
