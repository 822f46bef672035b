import { readdirSync, readFileSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import { expect, test } from 'vitest';
import { type Checkpoint, openCheckpoint } from '../../src/checkpoint/checkpoint.js';

const layouts = 'test/fixtures/layouts';
const folders = [
  ...readdirSync('models').map((name) => `models/${name}`),
  ...readdirSync(layouts).map((name) => `${layouts}/${name}`),
];

async function withCheckpoint<T>(
  folder: string,
  use: (checkpoint: Checkpoint) => T | Promise<T>,
): Promise<T> {
  const checkpoint = await openCheckpoint(folder);
  try {
    return await use(checkpoint);
  } finally {
    await checkpoint.close();
  }
}

test.each(folders)(
  '%s: every tensor has one place in the description, and its head is last',
  async (folder) => {
    await withCheckpoint(folder, ({ description, tensors, config }) => {
      const { matrices, vectors, tables, notes } = description;
      const sources = [...tables, ...vectors, ...matrices.slice(0, -1)].map(
        ({ sourceTensor }) => sourceTensor,
      );
      const head = matrices.at(-1)!;
      expect(head.id).toBe('head');
      if (config.tied) expect(head.sourceTensor).toBe(tables[0]!.sourceTensor);
      else sources.push(head.sourceTensor);
      expect(sources.sort()).toEqual(
        [...tensors.keys()].filter((name) => name !== 'lm_head.weight' || !config.tied).sort(),
      );
      const ids = [...matrices, ...vectors, ...tables].map(({ id }) => id);
      expect(new Set(ids).size).toBe(ids.length);
      const dense = config.activation === 'silu' || config.activation === 'gelu';
      expect(notes).toEqual(dense ? ['not activation-sparse: packets would move everything'] : []);
    });
  },
);

test.each([
  ['opt-350m-style-post-norm-proj', { preNorm: false, finalNorm: false, embeddingSize: 32, hiddenSize: 64 }],
  ['opt-pre-norm-proj', { preNorm: true, finalNorm: true, embeddingSize: 32, hiddenSize: 48 }],
  ['opt-no-bias-no-affine', { bias: false, affineNorm: false, finalNorm: true }],
  ['opt-untied', { tied: false }],
  ['opt-gelu', { activation: 'gelu' }],
  ['opt-bin', { architecture: 'OPTForCausalLM', maxPositions: 64 }],
  ['llama-relu-gqa', { kvHeads: 2, heads: 4, headDim: 12, gated: true, tied: false, activation: 'relu' }],
  ['llama-relu-mha-bias-untied', { qkvBias: true, outputBias: true, ffnBias: true, tied: false }],
  ['qwen2-silu', { qkvBias: true, outputBias: false, ffnBias: false, activation: 'silu' }],
])('%s is configured as its name says', async (name, wanted) => {
  await withCheckpoint(`${layouts}/${name}`, ({ config }) => expect(config).toMatchObject(wanted));
});

test.each([
  ['opt-f32', 'f32'],
  ['opt-bf16', 'bf16'],
  ['opt-bin', 'f16'],
  ['opt-sharded-safetensors', 'f16'],
])('%s is stored as %s', async (name, type) => {
  await withCheckpoint(`${layouts}/${name}`, ({ tensors }) => {
    for (const tensor of tensors.values()) expect(tensor.type).toBe(type);
  });
});

test('the storages of a torch file are found where their checksums say', async () => {
  const folder = `${layouts}/opt-bin`;
  const checksums = centralChecksums(readFileSync(`${folder}/pytorch_model.bin`), '/data/');
  await withCheckpoint(folder, async (checkpoint) => {
    const seen: number[] = [];
    for (const tensor of checkpoint.tensors.values()) {
      if (tensor.name !== 'lm_head.weight') seen.push(crc32(await checkpoint.readTensor(tensor)));
    }
    expect(seen.sort()).toEqual(checksums.sort());
  });
});

/** CRC-32 of the entries whose names hold `part`, from the records of a central directory. */
function centralChecksums(zip: Buffer, part: string): number[] {
  const checksums: number[] = [];
  for (let at = zip.indexOf('PK\x01\x02'); at >= 0; at = zip.indexOf('PK\x01\x02', at + 1)) {
    const name = zip.toString('latin1', at + 46, at + 46 + zip.readUInt16LE(at + 28));
    if (name.includes(part)) checksums.push(zip.readUInt32LE(at + 16));
  }
  return checksums;
}
