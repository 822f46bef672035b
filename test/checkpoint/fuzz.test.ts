import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { WaybillError } from '../../src/base/errors.js';
import { type JsonObject, type JsonValue, parseJson } from '../../src/base/json.js';
import { unpickle } from '../../src/checkpoint/pickle.js';
import { readModelConfig } from '../../src/checkpoint/read-config.js';
import { readSafetensors } from '../../src/checkpoint/safetensors.js';
import { parseShardIndex } from '../../src/checkpoint/shard-index.js';
import type { StoredTensor } from '../../src/checkpoint/stored-tensor.js';
import { readTorchBin } from '../../src/checkpoint/torch-bin.js';
import { torchHost } from '../../src/checkpoint/torch-values.js';
import type { WeightFile } from '../../src/checkpoint/weight-file.js';
import { arceeConfig, llamaConfig, nemotronConfig, qwen2Config } from './support/llama-configs.js';
import { safetensorsFile } from './support/safetensors-file.js';
import { tinyOptConfig, tinyOptTensors } from './support/tiny-opt.js';
import { statePickle, tensorPickle, torchFile } from './support/torch-file.js';

/** fast-check prints the seed and the shrunken counterexample of a failure. */
const runs = { numRuns: 400 };

/** A file in memory, which refuses reads outside it and allocations that no file of its size explains. */
function memoryFile(bytes: Uint8Array): WeightFile {
  return {
    name: 'f',
    path: 'f',
    byteLength: bytes.byteLength,
    async read(byteOffset, target) {
      const inside = byteOffset >= 0 && byteOffset + target.byteLength <= bytes.byteLength;
      expect(inside, `a read of ${target.byteLength} bytes at ${byteOffset}`).toBe(true);
      target.set(bytes.subarray(byteOffset, byteOffset + target.byteLength));
    },
    async close() {},
  };
}

/** What random damage to a file looks like: bytes changed, a part cut out, the end cut off, a part repeated. */
const damage = fc.record({
  changes: fc.array(
    fc.tuple(
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      fc.constantFrom(0, 1, 0x7f, 0x80, 0xff, 0x28, 0x2e, 0x7b),
    ),
    { maxLength: 4 },
  ),
  cutAt: fc.double({ min: 0, max: 1, noNaN: true }),
  cutBytes: fc.constantFrom(0, 0, 1, 7, 64),
  keep: fc.oneof(
    { weight: 3, arbitrary: fc.constant(1) },
    { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
  ),
});
type Damage = typeof damage extends fc.Arbitrary<infer T> ? T : never;

function damaged(bytes: Uint8Array, { changes, cutAt, cutBytes, keep }: Damage): Buffer {
  const copy = Buffer.from(bytes);
  for (const [place, value] of changes) copy[Math.floor(place * copy.byteLength)] = value;
  const at = Math.floor(cutAt * copy.byteLength);
  const joined = Buffer.concat([copy.subarray(0, at), copy.subarray(at + cutBytes)]);
  return joined.subarray(0, Math.ceil(keep * joined.byteLength));
}

/** Whatever is read lies inside the file; whatever is refused is refused by a Waybill error. */
async function readsOrRefuses(
  read: (file: WeightFile) => Promise<StoredTensor[]>,
  bytes: Uint8Array,
): Promise<boolean> {
  try {
    for (const { byteOffset, byteLength, shape, unreadable } of await read(memoryFile(bytes))) {
      expect(Number.isSafeInteger(byteOffset + byteLength)).toBe(true);
      expect(shape.every((size) => Number.isSafeInteger(size) && size >= 0)).toBe(true);
      if (unreadable === null) expect(byteOffset + byteLength).toBeLessThanOrEqual(bytes.byteLength);
    }
    return true;
  } catch (cause) {
    if (!(cause instanceof WaybillError)) throw cause;
    return false;
  }
}

const safetensors = safetensorsFile(tinyOptTensors());
const torch = torchFile(
  statePickle({
    a: tensorPickle({ key: '0', elements: 6, shape: [2, 3], strides: [3, 1] }),
    b: tensorPickle({ key: '1', elements: 4, offset: 1, shape: [3], strides: [1], parameter: true }),
  }),
  { 0: Buffer.alloc(12, 1), 1: Buffer.alloc(8, 2) },
  { padding: 5 },
);
const torch64 = torchFile(
  statePickle({ a: tensorPickle({ key: '0', elements: 6, shape: [6], strides: [1] }) }),
  { 0: Buffer.alloc(12, 1) },
  { zip64: true },
);
const realTorch = readFileSync('test/fixtures/layouts/opt-bin/pytorch_model.bin');

test.each([
  ['safetensors', readSafetensors, safetensors],
  ['torch', readTorchBin, torch],
  ['torch zip64', readTorchBin, torch64],
])('damaged %s files are read inside their bounds or refused', async (_, read, bytes) => {
  expect(await readsOrRefuses(read, bytes)).toBe(true);
  await fc.assert(
    fc.asyncProperty(damage, async (by) => {
      await readsOrRefuses(read, damaged(bytes, by));
    }),
    runs,
  );
});

test('every cut of a safetensors file is refused', async () => {
  for (let length = 0; length < safetensors.byteLength; length++) {
    expect(await readsOrRefuses(readSafetensors, safetensors.subarray(0, length))).toBe(false);
  }
});

test('every cut of a torch file is refused', async () => {
  for (let length = 0; length < torch.byteLength; length++) {
    expect(await readsOrRefuses(readTorchBin, torch.subarray(0, length))).toBe(false);
  }
});

test('a damaged directory of a real torch file is read inside its bounds or refused', async () => {
  const directory = realTorch.indexOf('PK\x01\x02');
  await fc.assert(
    fc.asyncProperty(damage, async (by) => {
      const tail = damaged(realTorch.subarray(directory), { ...by, cutBytes: 0, keep: 1 });
      await readsOrRefuses(readTorchBin, Buffer.concat([realTorch.subarray(0, directory), tail]));
    }),
    { numRuns: 60 },
  );
});

test('any bytes are unpickled or refused', () => {
  const opcode = fc.constantFrom(
    ...Buffer.from('\x80\x02\x04.(01N\x88\x89JKM\x8aGXTUCBqr\x94hjc\x93RbQ)\x85\x86\x87t]ae}suo'),
  );
  const bytes = fc.array(fc.oneof({ weight: 5, arbitrary: opcode }, { weight: 1, arbitrary: fc.nat(255) }), {
    maxLength: 60,
  });
  fc.assert(
    fc.property(bytes, (values) => {
      try {
        unpickle(Uint8Array.from(values), 'f', torchHost('f'));
      } catch (cause) {
        if (!(cause instanceof WaybillError)) throw cause;
      }
    }),
    { numRuns: 5000 },
  );
});

test('any bytes are JSON or refused', () => {
  const text = Buffer.from(JSON.stringify(arceeConfig));
  fc.assert(
    fc.property(damage, (by) => {
      try {
        parseJson(damaged(text, by), 'f');
      } catch (cause) {
        if (!(cause instanceof WaybillError)) throw cause;
      }
    }),
    { numRuns: 2000 },
  );
});

const configs = [tinyOptConfig, llamaConfig, qwen2Config, nemotronConfig, arceeConfig].map(
  (config) => JSON.parse(JSON.stringify(config)) as JsonObject,
);
const extraFields = [
  'rope_scaling',
  'rope_parameters',
  'rope_theta',
  'eos_token_id',
  'sliding_window',
  'layer_types',
  'hidden_act_param',
  'head_dim',
  'partial_rotary_factor',
  'tie_word_embeddings',
];
const oddValue = fc.oneof(
  fc.constantFrom<JsonValue>(
    null,
    0,
    -1,
    1,
    2,
    1.5,
    1e308,
    2 ** 53,
    '',
    '4',
    'yarn',
    'fatrelu',
    true,
    [],
    {},
    [[]],
    { rope_type: 'linear', factor: 3 },
    { rope_type: 'dynamic', factor: 1e20 },
  ),
  fc.jsonValue({ maxDepth: 2 }) as fc.Arbitrary<JsonValue>,
);

test('any configuration is a consistent model or refused', () => {
  const edits = fc.array(fc.tuple(fc.nat(), oddValue), { maxLength: 3 });
  fc.assert(
    fc.property(fc.constantFrom(...configs), edits, (config, changes) => {
      const changed: JsonObject = { ...config };
      const fields = [...Object.keys(config), ...extraFields];
      for (const [at, value] of changes) changed[fields[at % fields.length]!] = value;
      try {
        const model = readModelConfig(changed, null);
        for (const size of [
          model.vocabSize,
          model.hiddenSize,
          model.layers,
          model.heads,
          model.kvHeads,
          model.headDim,
          model.ffnSize,
          model.maxPositions,
        ]) {
          expect(Number.isSafeInteger(size) && size > 0).toBe(true);
        }
        expect(model.heads % model.kvHeads).toBe(0);
        expect(model.normEpsilon > 0).toBe(true);
        if (model.family === 'llama')
          expect(model.rotary % 2 === 0 && model.rotary <= model.headDim).toBe(true);
      } catch (cause) {
        if (!(cause instanceof WaybillError)) throw cause;
      }
    }),
    { numRuns: 3000 },
  );
});

test('any shard index names files inside the folder or is refused', () => {
  const part = fc.constantFrom('a', '..', '.', '', 'b.safetensors', '\\', 'c:', '\0');
  const file = fc.array(part, { maxLength: 4 }).map((parts) => parts.join('/'));
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.oneof(file, fc.integer())), (map) => {
      try {
        for (const name of parseShardIndex({ weight_map: map }, 'i').files) {
          expect(name).toMatch(/^(?!.*(^|\/)\.{0,2}(\/|$))[^\\:]+$/);
        }
      } catch (cause) {
        if (!(cause instanceof WaybillError)) throw cause;
      }
    }),
    runs,
  );
});
