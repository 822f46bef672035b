import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { normalCumulative } from '../../src/base/normal.js';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import { digestSourceFiles, sourceDigest } from '../../src/checkpoint/source-digest.js';
import { makeCheckpoint, syntheticSourceDigest } from '../../src/checkpoint/synthetic.js';
import { syntheticShapes, syntheticTensors } from '../../src/checkpoint/synthetic-opt.js';
import { mean, zipfThresholds } from '../../src/checkpoint/synthetic-popularity.js';
import { referenceForward } from './opt-reference.js';

let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'waybill-synthetic-'));
});
afterAll(() => rm(root, { recursive: true, force: true }));

const small = { layers: 3, hidden: 256, ffn: 1024, heads: 4, vocabulary: 500, positions: 64 };

async function digests(folder: string): Promise<Record<string, string>> {
  const entries = (await readdir(folder)).sort().map(async (name) => {
    const bytes = await readFile(join(folder, name));
    return [name, createHash('sha256').update(bytes).digest('hex')] as const;
  });
  return Object.fromEntries(await Promise.all(entries));
}

describe.each([
  { active: 0.034, seed: 1, type: 'f16' },
  { active: 0.034, seed: 7, type: 'bf16' },
  { active: 0.2, seed: 3, type: 'f32' },
] as const)('$active active, seed $seed, $type', (options) => {
  test('a real forward pass has the active share, shared between neighbours, and stays in range', async () => {
    const directory = join(root, `model-${options.seed}`);
    await makeCheckpoint({ directory, shape: small, ...options });
    const tokens = Array.from({ length: 32 }, (_, position) => (position * 131 + 7) % small.vocabulary);
    const { active, logits, largest } = await referenceForward(directory, tokens);

    const shareOf = (sets: readonly ReadonlySet<number>[]) =>
      sets.reduce((sum, { size }) => sum + size, 0) / sets.length / small.ffn;
    // 3 layers x 32 tokens x 1,024 neurons, of which neighbours share many: about 6 % statistical error at 0.034.
    const overall = shareOf(active.flat());
    expect(overall).toBeGreaterThan(options.active * 0.8);
    expect(overall).toBeLessThan(options.active * 1.25);
    for (const layer of active) {
      expect(shareOf(layer)).toBeGreaterThan(options.active * 0.6);
      expect(shareOf(layer)).toBeLessThan(options.active * 1.5);
    }
    const unions = active.map((sets) => new Set(sets.flatMap((set) => [...set])).size / small.ffn);
    const union = unions.reduce((sum, share) => sum + share, 0) / unions.length;
    const independent = 1 - (1 - options.active) ** tokens.length;
    if (options.active === 0.034) {
      expect(union).toBeGreaterThan(0.2);
      expect(union).toBeLessThan(0.34);
    }
    expect(union).toBeLessThan(independent * 0.8);

    expect(largest).toBeLessThan(100);
    const chosen = new Set<number>();
    for (const row of logits) {
      const deviation = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0) / row.length);
      expect(deviation).toBeGreaterThan(0.5);
      expect(deviation).toBeLessThan(10);
      chosen.add(row.indexOf(Math.max(...row)));
    }
    expect(chosen.size).toBeGreaterThan(tokens.length / 4);
    expect(tokens.some((id) => !chosen.has(id))).toBe(true);
  });
});

test('equal options give equal bytes, another seed gives others', async () => {
  const make = async (name: string, seed: number) => {
    const directory = join(root, name);
    await makeCheckpoint({ directory, shape: small, active: 0.05, seed, type: 'f16' });
    return digests(directory);
  };
  const [first, again, other] = [await make('a', 1), await make('b', 1), await make('c', 2 ** 40 + 1)];
  expect(again).toEqual(first);
  expect(Object.keys(first)).toEqual(['config.json', 'generation_config.json', 'model.safetensors']);
  expect(other['model.safetensors']).not.toBe(first['model.safetensors']);
  expect(first['model.safetensors']).toBe(pinnedDigest);
});

/** Weights of seed 1 on every machine and release: a benchmark's checkpoint is named by its options. */
const pinnedDigest = '8d6668fa07fd16ae88fc676768214494bf09d928ae48b42f16cc4cf9729d42c6';

test('large models are sharded, and their bytes are those of one file', async () => {
  const options = { shape: small, active: 0.034, seed: 5, type: 'f16' } as const;
  const whole = join(root, 'whole');
  const sharded = join(root, 'sharded');
  await makeCheckpoint({ directory: whole, ...options });
  await makeCheckpoint({ directory: sharded, shardBytes: 1_000_000, ...options });
  const names = (await readdir(sharded)).filter((name) => name.endsWith('.safetensors'));
  expect(names.length).toBeGreaterThan(3);
  const [one, many] = [await openCheckpoint(whole), await openCheckpoint(sharded)];
  expect([...many.tensors.keys()].sort()).toEqual([...one.tensors.keys()].sort());
  for (const tensor of one.tensors.values()) {
    const bytes = await many.readTensor(many.tensor(tensor.name));
    expect(Buffer.compare(bytes, await one.readTensor(tensor))).toBe(0);
  }
  await Promise.all([one.close(), many.close()]);

  for (const [directory, shardBytes] of [
    [whole, undefined],
    [sharded, 1_000_000],
  ] as const) {
    const written = await digestSourceFiles(directory, await readdir(directory), { cacheDirectory: null });
    expect(await syntheticSourceDigest({ ...options, shardBytes })).toBe(sourceDigest(written));
  }
});

test('the named shapes have the published numbers of parameters', () => {
  const count = (name: string) =>
    syntheticTensors({ shape: syntheticShapes[name]!, active: 0.034, seed: 1, type: 'f16' })
      .map(({ shape }) => shape.reduce((product, size) => product * size, 1))
      .reduce((sum, elements) => sum + elements, 0);
  expect(count('opt-1.3b')).toBe(1_315_758_080);
  expect(count('opt-2.7b')).toBe(2_651_596_800);
});

test('a folder with files, and options that make no model, are refused', async () => {
  const directory = await mkdtemp(join(root, 'full-'));
  await writeFile(join(directory, 'note'), '');
  const options = { directory, shape: small, active: 0.034, seed: 1, type: 'f16' } as const;
  await expect(makeCheckpoint(options)).rejects.toMatchObject({
    name: 'SetupError',
    code: 'directory-in-use',
  });
  const refusals = [
    [{ active: 0 }, 'synthetic-active'],
    [{ active: Number.NaN }, 'synthetic-active'],
    [{ seed: -1 }, 'synthetic-seed'],
    [{ seed: 0.5 }, 'synthetic-seed'],
    [{ shape: { ...small, heads: 5 } }, 'synthetic-shape'],
    [{ shape: { ...small, layers: 0 } }, 'synthetic-shape'],
    [{ shape: { ...small, ffn: 1.5 } }, 'synthetic-shape'],
  ] as const;
  for (const [change, code] of refusals) {
    await expect(
      makeCheckpoint({ ...options, directory: join(root, 'none'), ...change }),
    ).rejects.toMatchObject({
      name: 'UsageError',
      code,
    });
  }
});

describe('popularity by Zipf', () => {
  test('thresholds are passed with probability c / rank, at most .98, the wanted share on average', () => {
    for (const [neurons, active, exponent] of [
      [10_240, 0.034, 1],
      [1024, 0.1, 1.3],
      [300, 0.02, 0],
    ] as const) {
      const passed = zipfThresholds(neurons, active, exponent).map((at) => 1 - normalCumulative(at));
      expect(mean(passed)).toBeCloseTo(active, 5);
      expect(Math.max(...passed)).toBeLessThan(0.9801);
      const last = passed.at(-1)! * neurons ** exponent;
      passed.forEach((share, rank) => {
        if (share < 0.97) expect(share * (rank + 1) ** exponent).toBeCloseTo(last, 1);
      });
    }
  });

  test('a real forward pass shows the active share and about half in common with the token before', async () => {
    const directory = join(root, 'zipf');
    const popularity = { kind: 'zipf', exponent: 1 } as const;
    const made = {
      shape: small,
      active: 0.034,
      seed: 5,
      type: 'f16',
      popularity,
      positionShare: 0.55,
    } as const;
    await makeCheckpoint({ directory, ...made });
    const tokens = Array.from({ length: 32 }, (_, position) => (position * 131 + 7) % small.vocabulary);
    const { active } = await referenceForward(directory, tokens);
    let [uses, repeats, most] = [0, 0, 0];
    const counts = new Map<string, number>();
    active.forEach((sets, layer) => {
      sets.forEach((set, token) => {
        uses += set.size;
        for (const neuron of set) {
          if (token > 0 && sets[token - 1]!.has(neuron)) repeats += 1;
          const count = (counts.get(`${layer} ${neuron}`) ?? 0) + 1;
          counts.set(`${layer} ${neuron}`, count);
          most = Math.max(most, count);
        }
      });
    });
    const share = uses / (small.layers * tokens.length * small.ffn);
    expect(share).toBeGreaterThan(0.034 * 0.75);
    expect(share).toBeLessThan(0.034 * 1.3);
    expect(repeats / uses).toBeGreaterThan(0.38);
    expect(repeats / uses).toBeLessThan(0.62);
    expect(most).toBeGreaterThan(28); // the most popular are active nearly always
    const union = counts.size / (small.layers * small.ffn);
    expect(union).toBeGreaterThan(0.12);
    expect(union).toBeLessThan(0.3);
  });

  test('refuses exponents and shares out of range', async () => {
    const base = {
      directory: join(root, 'none'),
      shape: small,
      active: 0.034,
      seed: 5,
      type: 'f16',
    } as const;
    const code = (more: object) => makeCheckpoint({ ...base, ...more }).catch((error) => error.code);
    expect(await code({ positionShare: 1 })).toBe('synthetic-position-share');
    expect(await code({ popularity: { kind: 'zipf', exponent: -1 } })).toBe('synthetic-popularity');
  });
});
