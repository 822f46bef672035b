import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  draft,
  failure,
  finish,
  gated,
  layout,
  start,
  temporaryFolder,
  waybill,
  waybillJson,
} from './harness.js';

const folder = temporaryFolder();
const file = (name: string, text: string | Uint8Array): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const base = ['generate', '-m', draft, '-n', '12'];
const prompt = 'The old house stood at the end';

describe('what comes out', () => {
  test('text alone on standard output, everything else on standard error', async () => {
    const loud = await waybill([...base, '-p', prompt]);
    expect(loud.code).toBe(0);
    expect(loud.stdout.endsWith('\n')).toBe(true);
    expect(loud.stderr).toMatch(/12 tokens \| .* tokens\/s/);
    const quiet = await waybill([...base, '-p', prompt, '--quiet']);
    expect(quiet).toEqual({ code: 0, stdout: loud.stdout, stderr: '' });
    const plain = await waybill([...base, '-p', prompt], {
      environment: { NO_COLOR: '1', FORCE_COLOR: '1' },
    });
    expect(plain.stdout + plain.stderr).not.toContain('\u001b');
    expect(plain.stdout).toBe(loud.stdout);
  });

  test('one JSON object, whose parts agree', async () => {
    const { code, stdout } = await waybill([...base, '-p', prompt, '--json']);
    expect(code).toBe(0);
    const run = JSON.parse(stdout);
    expect(Object.keys(run)).toEqual(
      expect.arrayContaining(['text', 'tokenIds', 'finishReason', 'timings', 'bytes', 'peaks', 'digests']),
    );
    expect(run.tokenIds).toHaveLength(12);
    expect(run.digests.logits).toHaveLength(12);
    expect(run.finishReason).toBe('length');
    expect(run.backend.numerics).toBe('portable');
    expect((await waybill([...base, '-p', prompt, '-q'])).stdout).toBe(`${run.text}\n`);
  });

  test('text comes while tokens are still computed', async () => {
    const child = start([
      'generate',
      '-m',
      draft,
      '-p',
      prompt,
      '-n',
      '900',
      '--ignore-eos',
      '-q',
      '--backend',
      'oracle',
    ]);
    const first = await new Promise<string>((seen) =>
      child.stdout!.once('data', (bytes) => seen(String(bytes))),
    );
    child.kill('SIGINT');
    const { code, stdout } = await finish(child);
    expect(first.length).toBeGreaterThan(0);
    expect(code).toBe(130);
    expect((first + stdout).length).toBeLessThan(3000);
  });
});

describe('prompts', () => {
  test('from a flag, a file, standard input and ids give one run', async () => {
    const ids = await waybillJson([
      ...base,
      '-p',
      prompt,
      '--receipt',
      join(folder, 'p.jsonl'),
      '--include-content',
    ]);
    const path = file('prompt.txt', `${prompt}\n`);
    const given = JSON.parse((await import('node:fs')).readFileSync(join(folder, 'p.jsonl'), 'utf8'))
      .predicate.requests[0].content.promptIds as number[];
    expect(given[0]).toBe(2); // OPT: one leading </s>
    const others = await Promise.all([
      waybillJson([...base, '--prompt-file', path]),
      waybillJson([...base, '--prompt-file', '-'], { input: prompt }),
      waybillJson(base, { input: `${prompt}\n` }),
      waybillJson([...base, '--prompt-ids', given.join(',')]),
    ]);
    for (const other of others) expect(other.digests).toEqual(ids.digests);
    const bare = await waybillJson([...base, '--prompt-ids', given.slice(1).join(', ')]);
    expect(bare.promptTokens).toBe(given.length - 1);
    expect(bare.digests).not.toEqual(ids.digests);
  });

  test('of a JSONL file run as one batch, each as if alone', async () => {
    const path = file(
      'prompts.jsonl',
      `{"prompt": "${prompt}"}\n\n"She said"\n{"prompt_ids": [2, 100, 524]}\n`,
    );
    const batch = await waybillJson([...base, '--prompts', path]);
    const alone = [
      await waybillJson([...base, '-p', prompt]),
      await waybillJson([...base, '-p', 'She said']),
      await waybillJson([...base, '--prompt-ids', '2,100,524']),
    ];
    expect(batch.requests.map(({ digests }) => digests)).toEqual(alone.map(({ digests }) => digests));
    const text = await waybill([...base, '--prompts', path, '-q']);
    expect(text.stdout).toBe(alone.map(({ text }, index) => `[${index}] ${text}\n`).join(''));
  });
});

describe('flags that change the run', () => {
  test('--stop, repeatable, ends before the string', async () => {
    const whole = await waybillJson([...base, '-p', prompt, '-n', '30']);
    const words = whole.text.split(/\s+/).filter((word: string) => word.length > 2);
    const [first = '', second = ''] = [words[3], words[6]];
    const cut = await waybillJson([...base, '-p', prompt, '-n', '30', '--stop', second, '--stop', first]);
    expect(cut.finishReason).toBe('stop');
    expect(whole.text.startsWith(cut.text)).toBe(true);
    expect(cut.text).toBe(whole.text.slice(0, whole.text.indexOf(first)));
    expect(cut.tokenIds.length).toBeLessThan(30);
  });

  test('--ignore-eos goes on where the model would end', async () => {
    const ended = await waybillJson([
      'generate',
      '-m',
      draft,
      '--prompt-ids',
      '2',
      '-n',
      '400',
      '--temperature',
      '1',
      '--seed',
      '2',
      '--stop',
      'no such text',
    ]);
    const on = await waybillJson([
      'generate',
      '-m',
      draft,
      '--prompt-ids',
      '2',
      '-n',
      '400',
      '--temperature',
      '1',
      '--seed',
      '2',
      '--ignore-eos',
    ]);
    expect(on.tokenIds).toHaveLength(400);
    expect(on.tokenIds.slice(0, ended.tokenIds.length)).toEqual(ended.tokenIds);
  });

  test('--seed chooses, and chooses again', async () => {
    const sampled = (...more: string[]) =>
      waybillJson([
        ...base,
        '-p',
        prompt,
        '--temperature',
        '0.9',
        '--top-k',
        '40',
        '--top-p',
        '0.95',
        '--min-p',
        '0.01',
        ...more,
      ]);
    const [one, again, other] = await Promise.all([
      sampled('--seed', '7'),
      sampled('--seed', '7', '-t', '1'),
      sampled('--seed', '8'),
    ]);
    expect(again.tokenIds).toEqual(one.tokenIds);
    expect(other.tokenIds).not.toEqual(one.tokenIds);
  });

  test('--policy, --kernels, --backend, --threads, --prefill-chunk change who computes, not what', async () => {
    const reference = await waybillJson([...base, '-p', prompt]);
    const variants = [
      ['--policy', 'resident-sparse'],
      ['--policy', 'stream', '--budget', '3165000'],
      ['--policy', 'packets', '--budget', '2900000', '--prefill-chunk', '3'],
      ['--kernels', 'wasm', '--threads', '1'],
      ['--backend', 'oracle'],
    ];
    const runs = await Promise.all(variants.map((flags) => waybillJson([...base, '-p', prompt, ...flags])));
    for (const run of runs) expect(run.digests).toEqual(reference.digests);
    expect(runs.map(({ policy }) => policy)).toEqual([
      'resident-sparse',
      'stream',
      'packets',
      'resident-sparse',
      'resident-sparse',
    ]);
    expect(runs[1]!.bytes.moved['dense-weights']).not.toBe('0');
    expect(runs[2]!.bytes.moved['packet-rows']).not.toBe('0');
    expect(runs[3]!.backend).toMatchObject({ threads: 1 });
    expect(runs[3]!.backend.kernels).toMatch(/wasm/i);
    expect(runs[4]!.backend.name).toBe('oracle');
  });

  test('--kv f32 and --ctx-size change what is held', async () => {
    const [half, single, longer] = await Promise.all([
      waybillJson([...base, '-p', prompt]),
      waybillJson([...base, '-p', prompt, '--kv', 'f32']),
      waybillJson([...base, '-p', prompt, '--ctx-size', '200']),
    ]);
    expect(Number(single.peaks.held.kv)).toBe(2 * Number(half.peaks.held.kv));
    expect(single.digests).not.toEqual(half.digests);
    expect(Number(longer.peaks.held.kv)).toBeGreaterThan(2 * Number(half.peaks.held.kv));
    expect(longer.digests).toEqual(half.digests);
  });

  test('--max-new-tokens beyond the context is said, and ends there', async () => {
    const run = await waybill([
      'generate',
      '-m',
      layout('opt-f32'),
      '--prompt-ids',
      '5,6',
      '-n',
      '100000',
      '--ignore-eos',
      '--json',
    ]);
    expect(JSON.parse(run.stdout)).toMatchObject({ finishReason: 'length', text: '' });
    expect(run.stderr).toMatch(/the context of \d+ positions ends before 100000 new tokens/);
  });

  test('a gated model', async () => {
    const runs = await Promise.all(
      [['resident'], ['packets', '--budget', '3500000']].map(([policy, ...more]) =>
        waybillJson(['generate', '-m', gated, '-p', prompt, '-n', '6', '--policy', policy!, ...more]),
      ),
    );
    expect(runs[1]!.digests).toEqual(runs[0]!.digests);
  });
});

describe('flags that cannot take effect are errors', () => {
  const out = (name: string): string => join(folder, name);
  test.each<[string[], string]>([
    [['-p', 'a', '--seed', '1'], 'option-without-effect'],
    [['-p', 'a', '--top-k', '4'], 'option-without-effect'],
    [['-p', 'a', '--kernels', 'native', '--backend', 'oracle'], 'option-without-effect'],
    [['-p', 'a', '--threads', '1', '--backend', 'oracle'], 'option-without-effect'],
    [['-p', 'a', '--sign', 'key.pem'], 'option-without-effect'],
    [['-p', 'a', '--include-content'], 'option-without-effect'],
    [['-p', 'a', '--revision', 'main'], 'revision-of-folder'],
    [['-p', 'a', '--prompt-ids', '2'], 'several-prompts'],
    [['-p', 'a', '--receipt', out('x'), '--logits', out('x')], 'same-file'],
    [['-p', 'a', '--receipt', out('x'), '--trace', out('x.salt')], 'same-file'],
    [['-p', 'a', '--threads', '0'], 'bad-option'],
    [['-p', 'a', '--temperature', '-1'], 'bad-option'],
    [['-p', 'a', '--temperature', '1e400'], 'bad-option'],
    [['-p', 'a', '--temperature', `0.${'0'.repeat(50)}1`], 'bad-option'],
    [['-p', 'a', '--temperature', '1', '--top-p', '0'], 'bad-option'],
    [['-p', 'a', '--temperature', '1', '--min-p', '1.5'], 'bad-option'],
    [['-p', 'a', '-n', '0'], 'bad-option'],
    [['-p', 'a', '--stop', ''], 'bad-option'],
    [['-p', 'a', '--kv', 'f8'], 'bad-option'],
    [['-p', 'a', '--backend', 'gpu'], 'bad-option'],
    [['-p', 'a', '--policy', 'magic'], 'unknown-policy'],
    [['-p', 'a', '--ctx-size', '100000'], 'context-too-long'],
    [['-p', 'a', '--colour'], 'unknown-option'],
    [['-p', 'a', 'b'], 'excess-arguments'],
  ])('%j: %s', async (more, code) => {
    const error = await failure(['generate', '-m', draft, ...more]);
    expect(error).toMatchObject({ exit: 2, code });
    expect(error.message).not.toMatch(/\.$/);
  });

  test('the same on standard error without --json', async () => {
    const { code, stdout, stderr } = await waybill(['generate', '-m', draft, '-p', 'a', '--seed', '1']);
    expect(code).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toBe(
      'waybill: Cannot use --seed at temperature 0: greedy choice draws no random number; give a --temperature above 0 [option-without-effect]\n',
    );
  });
});

describe('what a run reads is not what it writes', () => {
  const cases = (): [string, string[]][] => {
    const model = join(folder, 'model');
    if (!existsSync(model)) cpSync(draft, model, { recursive: true, dereference: true });
    const text = file('read.txt', 'Once');
    const lines = file('read.jsonl', '{"prompt": "Once"}\n');
    return [
      [text, ['-m', draft, '--prompt-file', text, '--receipt', text]],
      [lines, ['-m', draft, '--prompts', lines, '--trace', join(folder, '.', 'read.jsonl')]],
      [
        join(model, 'model.safetensors'),
        ['-m', model, '-p', 'a', '--logits', join(model, 'model.safetensors')],
      ],
      [join(model, 'config.json'), ['-m', model, '-p', 'a', '--receipt', join(model, 'config.json')]],
    ];
  };

  test.each([0, 1, 2, 3])('case %i is refused and changes nothing', async (which) => {
    const [path, words] = cases()[which]!;
    const before = readFileSync(path);
    expect(await failure(['generate', '-n', '1', ...words])).toMatchObject({ exit: 2, code: 'same-file' });
    expect(readFileSync(path).equals(before)).toBe(true);
  });
});
