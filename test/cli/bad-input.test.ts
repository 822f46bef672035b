import { existsSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyOf, editConfig, editTensor } from './checkpoints.js';
import { draft, failure, layout, temporaryFolder, waybill, waybillJson } from './harness.js';
import type { PlanJson } from './json-shapes.js';

const tiny = layout('opt-f32');
const ids = ['--prompt-ids', '3,4,5', '-n', '3'];
const run = (model: string, ...more: string[]) => ['generate', '-m', model, ...ids, ...more];

/** Directories of prepared models below a home; digests of sources are kept beside them. */
function preparedIn(home: string): string[] {
  const folder = join(home, 'waybill');
  return existsSync(folder) ? readdirSync(folder).filter((name) => name !== 'digests') : [];
}

describe('a checkpoint that cannot be used', () => {
  const spoilt: Record<string, [code: string, names: RegExp, spoil: (folder: string) => void]> = {
    'one byte short': [
      'safetensors-truncated',
      /"model\.decoder\.\S+" ends at byte \d+/,
      (folder) => {
        const path = join(folder, 'model.safetensors');
        truncateSync(path, readFileSync(path).length - 1);
      },
    ],
    'sizes that contradict the tensors': [
      'tensor-shape',
      /"model\.decoder\.\S+" .* \[66, 48\]/,
      (folder) => editConfig(folder, { hidden_size: 64 }),
    ],
    'a number as a string': [
      'config-field',
      /"hidden_size" is "48"/,
      (folder) => editConfig(folder, { hidden_size: '48' }),
    ],
    'an unknown activation': [
      'unknown-activation',
      /"wobble"/,
      (folder) => editConfig(folder, { activation_function: 'wobble' }),
    ],
    'an unknown architecture': [
      'unknown-architecture',
      /WobbleForCausalLM/,
      (folder) => editConfig(folder, { architectures: ['WobbleForCausalLM'], model_type: 'wobble' }),
    ],
    'no config': ['file-missing', /config\.json/, (folder) => rmSync(join(folder, 'config.json'))],
    'no weights': [
      'weights-missing',
      /weights|safetensors/,
      (folder) => rmSync(join(folder, 'model.safetensors')),
    ],
  };
  test.each(Object.keys(spoilt))('%s', async (name) => {
    const [code, names, spoil] = spoilt[name]!;
    const folder = copyOf(tiny);
    spoil(folder);
    const home = temporaryFolder();
    const error = await failure(run(folder), { home });
    expect(error).toMatchObject({ exit: 2, code });
    expect(error.message).toMatch(names);
    expect(preparedIn(home)).toEqual([]);
  });

  test('an index that names an absent shard', async () => {
    const folder = copyOf(layout('opt-sharded-safetensors'));
    rmSync(join(folder, 'model-00003-of-00004.safetensors'));
    const error = await failure(run(folder));
    expect(error).toMatchObject({ exit: 2, code: 'file-missing' });
    expect(error.message).toContain('"model-00003-of-00004.safetensors"');
  });

  test('a folder that is not there, a file, an empty folder, an unknown hub id offline', async () => {
    expect(await failure(run('/no/such/model'))).toMatchObject({ exit: 3, code: 'model-missing' });
    expect(await failure(run(join(tiny, 'config.json')))).toMatchObject({
      exit: 3,
      code: 'model-not-a-folder',
    });
    expect(await failure(run(temporaryFolder()))).toMatchObject({ exit: 2, code: 'file-missing' });
    expect(await failure(run('org/no-such-model'))).toMatchObject({ exit: 3, code: 'hub-offline' });
  });
});

describe('prompts', () => {
  const file = (name: string, bytes: string | Uint8Array): string => {
    const path = join(temporaryFolder(), name);
    writeFileSync(path, bytes);
    return path;
  };
  const prompt = (...more: string[]) => ['generate', '-m', draft, '-n', '2', ...more];

  test('longer than the positions: both numbers', async () => {
    const error = await failure(prompt('--prompt-ids', Array.from({ length: 1100 }, () => 5).join()));
    expect(error).toMatchObject({
      exit: 2,
      code: 'prompt-too-long',
      data: { tokens: 1100, positions: 1024 },
    });
    expect(error.message).toMatch(/1100 tokens.* 1024 positions/);
    expect(await failure(prompt('--prompt-ids', '5,6,7,8', '--ctx-size', '3'))).toMatchObject({
      code: 'prompt-too-long',
    });
  });

  test.each<[string, () => string[], string | undefined, string]>([
    ['empty flag', () => ['-p', ''], undefined, 'empty-prompt'],
    ['empty standard input', () => [], '', 'empty-prompt'],
    ['empty file', () => ['-f', file('empty', '\n')], undefined, 'empty-prompt'],
    ['empty batch', () => ['--prompts', file('empty.jsonl', '\n')], undefined, 'prompts-empty'],
    ['empty in a batch', () => ['--prompts', file('one.jsonl', '"a"\n""\n')], undefined, 'empty-prompt'],
    [
      'bad line in a batch',
      () => ['--prompts', file('bad.jsonl', '"a"\n{"text": 3}\n')],
      undefined,
      'prompts-malformed',
    ],
    ['no UTF-8', () => ['-f', file('bad', Uint8Array.of(97, 98, 0xff))], undefined, 'prompt-invalid-utf8'],
    ['no such file', () => ['-f', '/no/such/file'], undefined, 'prompt-file-unreadable'],
    ['no ids', () => ['--prompt-ids', ''], undefined, 'prompt-ids-malformed'],
    ['an id beyond the vocabulary', () => ['--prompt-ids', '2,8192'], undefined, 'bad-token-id'],
    ['a negative id', () => ['--prompt-ids', '2,-1'], undefined, 'prompt-ids-malformed'],
  ])('%s', async (_, flags, input, code) => {
    expect(await failure(prompt(...flags()), input === undefined ? {} : { input })).toMatchObject({
      exit: 2,
      code,
    });
  });

  test('text for a checkpoint without tokenizer says which file is missing', async () => {
    expect(await failure(['generate', '-m', tiny, '-p', 'a'])).toMatchObject({
      exit: 2,
      code: 'tokenizer-missing',
    });
    expect(await failure(run(tiny, '--stop', 'a'))).toMatchObject({
      exit: 2,
      code: 'stop-without-tokenizer',
    });
  });
});

describe('--budget', () => {
  const planned = (...more: string[]) =>
    waybillJson<PlanJson>(['plan', '-m', tiny, '-c', '10', '--policy', 'packets', '-t', '2', ...more]);
  const bounded = (budget: string) =>
    run(tiny, '-c', '10', '--policy', 'packets', '-t', '2', '--budget', budget);

  test('is kept to the byte', async () => {
    const { placement } = await planned();
    const least = placement.minimumBytes as number;
    const below = await failure(bounded(String(least - 1)));
    expect(below).toMatchObject({ exit: 3, code: 'budget-too-small', data: { minimumBytes: least } });
    expect(below.message).toMatch(/at least \d+ bytes are needed \(kv cache \d+, .*active set \d+/);
    const reference = await waybillJson(run(tiny, '-c', '10'));
    for (const budget of [least, least + 1, 2 ** 31, 2 ** 32 + 1]) {
      const { digests, peaks, budgetBytes } = await waybillJson(bounded(String(budget)));
      expect(digests).toEqual(reference.digests);
      expect(budgetBytes).toBe(String(budget));
      expect(Number(peaks.heldBytes)).toBeLessThanOrEqual(budget);
      if (budget === least) expect(Number(peaks.heldBytes)).toBe(least);
    }
  });

  test.each([
    ['0', 3, 'budget-too-small'],
    ['1.5', 2, 'byte-size'],
    ['-1', 2, 'byte-size'],
    ['1.5B', 2, 'byte-size'],
    ['2gb', 2, 'byte-size'],
    ['', 2, 'byte-size'],
    ['1e9', 2, 'byte-size'],
    ['99999999TiB', 2, 'byte-size'],
  ])('%s is exit code %d, %s', async (budget, exit, code) =>
    expect(await failure(bounded(budget))).toMatchObject({ exit, code }),
  );

  test('2GB is no 2GiB', async () => {
    expect((await planned('--budget', '2GB')).placement.budgetBytes).toBe(2_000_000_000);
    expect((await planned('--budget', '2GiB')).placement.budgetBytes).toBe(2_147_483_648);
  });
});

describe('numbers that leave the numbers', () => {
  test('non-finite weights are named, that matrix is acquired densely, and every policy agrees', async () => {
    const folder = copyOf(layout('llama-relu-gqa'));
    const neuron = 5;
    // Its gate is always 0, so the NaN beside it never counts
    editTensor(folder, 'model.layers.1.mlp.gate_proj.weight', (bits, columns) =>
      bits.fill(0, neuron * columns, (neuron + 1) * columns),
    );
    editTensor(folder, 'model.layers.1.mlp.up_proj.weight', (bits, columns) => {
      bits[neuron * columns + 3] = 0x7e00;
    });
    const plan = await waybill(['plan', '-m', folder, '--policy', 'packets', '-c', '10']);
    expect(plan.stderr).toContain(
      'Weights of "model.layers.1.mlp.up_proj.weight" are not finite: NaN at [5, 3]',
    );
    expect(plan.stdout).toContain('note: layers.1.up is acquired densely: it holds non-finite weights');
    const { placement } = await waybillJson<PlanJson>([
      'plan',
      '-m',
      folder,
      '--policy',
      'packets',
      '-c',
      '5',
      '--prefill-chunk',
      '3',
      '-t',
      '2',
    ]);
    const budget = String(placement.minimumBytes);
    const reference = await waybillJson(run(folder, '--policy', 'resident'));
    for (const flags of [
      ['--policy', 'resident-sparse'],
      ['--policy', 'packets', '--budget', budget, '-c', '5', '--prefill-chunk', '3', '-t', '2'],
      ['--policy', 'stream'],
      ['--kernels', 'wasm'],
      ['--backend', 'oracle'],
    ])
      expect((await waybillJson(run(folder, ...flags))).digests).toEqual(reference.digests);
  });

  test('non-finite logits: op, layer and position', async () => {
    const folder = copyOf(tiny);
    editTensor(folder, 'model.decoder.layers.1.fc2.bias', (values) => {
      values[7] = Number.POSITIVE_INFINITY;
    });
    const receipt = join(temporaryFolder(), 'r.jsonl');
    const error = await failure(run(folder, '--receipt', receipt));
    expect(error).toMatchObject({
      exit: 4,
      code: 'non-finite',
      data: { position: 0, layer: 1, op: 'layers.1.second' },
    });
    expect(error.message).toBe(
      'Cannot compute logits at position 0: "layers.1.second" in layer 1 gave Infinity, want finite numbers',
    );
    expect(JSON.parse(readFileSync(receipt, 'utf8')).predicate.status).toBe('failed');
    expect((await waybill(['verify', receipt, '--model', folder])).code).toBe(0);
  });

  test('a value too large for the KV cache suggests --kv f32, which works', async () => {
    const folder = copyOf(tiny);
    editTensor(folder, 'model.decoder.layers.0.self_attn.v_proj.bias', (values) => {
      values[0] = 70_000;
    });
    const error = await failure(run(folder));
    expect(error).toMatchObject({ exit: 4, code: 'kv-overflow' });
    expect(error.message).toContain('--kv f32');
    expect((await waybillJson(run(folder, '--kv', 'f32'))).tokenIds).toHaveLength(3);
  });
});
