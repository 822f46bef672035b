import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { draft, failure, gated, layout, target, temporaryFolder, waybill, waybillJson } from './harness.js';
import type { PlanJson, PreparedJson } from './json-shapes.js';

const folder = temporaryFolder();
const at = (name: string): string => join(folder, name);

const commands = [
  'generate',
  'plan',
  'inspect',
  'prepare',
  'score',
  'diff',
  'verify',
  'keygen',
  'cache',
  'doctor',
  'demo',
];

describe('help and usage', () => {
  test('lists every command, each with help of its own', async () => {
    const { code, stdout } = await waybill(['--help']);
    expect(code).toBe(0);
    for (const name of commands) expect(stdout).toMatch(new RegExp(`^  ${name} `, 'm'));
    for (const name of ['generate', 'cache', 'diff']) {
      const own = await waybill([name, '--help']);
      expect(own).toMatchObject({ code: 0, stderr: '' });
      expect(own.stdout).toContain(`Usage: waybill ${name}`);
    }
    expect((await waybill(['--version'])).stdout.trim()).toBe(
      JSON.parse(readFileSync('package.json', 'utf8')).version,
    );
  });

  test.each([[[]], [['nonsense']], [['cache', 'nonsense']], [['generate']], [['diff', 'one']]])(
    '%j is a usage error',
    async (args) => {
      const { code, stdout, stderr } = await waybill(args);
      expect(code).toBe(2);
      expect(stdout).toBe('');
      expect(stderr).not.toMatch(/\n\s+at /);
      expect(stderr.length).toBeGreaterThan(0);
    },
  );
});

describe('plan', () => {
  test('tells placement, regime, bytes a token and a predicted speed, and loads nothing', async () => {
    const { code, stdout } = await waybill([
      'plan',
      '-m',
      target,
      '--budget',
      '20MB',
      '-c',
      '128',
      '--prefill-chunk',
      '32',
    ]);
    expect(code).toBe(0);
    for (const line of [
      /^regime {5}C: /m,
      /^budget {5}19\.073 MiB \(20000000 B\)$/m,
      /^a token {4}.* dense 0 B, rows/m,
      /^predicted {2}about [\d.]+ ms a token/m,
      /^kv cache +kv +983040 *$/m,
    ])
      expect(stdout).toMatch(line);
    const json = await waybillJson<PlanJson>([
      'plan',
      '-m',
      target,
      '--budget',
      '20MB',
      '-c',
      '128',
      '--prefill-chunk',
      '32',
    ]);
    expect(json.placement.components.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(
      json.placement.totalBytes,
    );
    expect(json.placement.totalBytes).toBeLessThanOrEqual(20_000_000);
    expect(json.placement.predictedMsPerToken).toBeGreaterThan(0);
  });

  test('says what packets would not help', async () => {
    const { stdout } = await waybill(['plan', '-m', layout('opt-gelu'), '--policy', 'packets']);
    expect(stdout).toContain('its activations are dense');
  });
});

describe('inspect', () => {
  test('tells what a checkpoint is', async () => {
    const { code, stdout } = await waybill(['inspect', '-m', target]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^architecture {2}OPTForCausalLM/m);
    expect(stdout).toMatch(/^packets {7}6 matrices \(second\)/m);
    expect(stdout).not.toContain('fc1.weight');
    expect((await waybill(['inspect', '-m', target, '--tensors'])).stdout).toContain('fc1.weight');
    expect((await waybill(['inspect', '-m', gated])).stdout).toMatch(/\((up and second|second and up)\)/);
    expect((await waybill(['inspect', '-m', layout('opt-gelu')])).stdout).toContain(
      '"gelu" gives no exact zeros',
    );
  });

  test('--tensors counts in --json too', async () => {
    const plain = await waybillJson<{ tensors?: unknown[]; weights: { tensors: number } }>([
      'inspect',
      '-m',
      target,
    ]);
    const full = await waybillJson<{ tensors?: unknown[] }>(['inspect', '-m', target, '--tensors']);
    expect(plain.tensors).toBeUndefined();
    expect(full.tensors).toHaveLength(plain.weights.tensors);
  });
});

describe('prepare and cache', () => {
  test('prepare, find again, verify, list, remove', async () => {
    const home = temporaryFolder();
    const first = await waybillJson<PreparedJson>(['prepare', '-m', draft], { home });
    expect(first.preparedNow).toBe(true);
    const again = await waybill(['prepare', '-m', draft], { home });
    expect(again.stdout).toMatch(/^was prepared: /);
    expect(again.stderr).toBe(''); // nothing is hashed or packed again
    const list = await waybillJson<{ entries: { kind: string; name: string }[] }>(['cache', 'ls'], { home });
    const entry = list.entries.find(({ kind }) => kind === 'prepared')!;
    expect(first.directory).toContain(entry.name.slice(0, 8));
    expect((await waybill(['cache', 'ls'], { home })).stdout).toContain(entry.name);
    expect(await failure(['cache', 'rm', 'ffffffff'], { home })).toMatchObject({ exit: 2 });
    expect((await waybill(['cache', 'rm', entry.name], { home })).code).toBe(0);
    expect(existsSync(first.directory)).toBe(false);
    const own = await waybillJson<PreparedJson>(['prepare', '-m', draft, '--prepared', at('own')], { home });
    expect(own.manifestDigest).toBe(first.manifestDigest);
    expect(existsSync(at('own/manifest.json'))).toBe(true);
    const weights = readFileSync(at('own/weights.bin'));
    weights[weights.length >> 1]! ^= 1;
    writeFileSync(at('own/weights.bin'), weights);
    expect(
      await failure(['prepare', '-m', draft, '--prepared', at('own'), '--verify'], { home }),
    ).toMatchObject({ exit: 6, code: 'tensor-digest' });
  });
});

describe('score', () => {
  test('scores a text, the same under every policy and budget', async () => {
    writeFileSync(at('text.txt'), 'The old man went to the house, and the children came out to see him.');
    type ScoreJson = {
      scoredTokens: number;
      logProbabilities: number[];
      perplexity: number;
      digests: { logits: string[] };
      backendChoice: unknown;
    };
    const score = (...flags: string[]) =>
      waybillJson<ScoreJson>(['score', '-m', draft, '--text', at('text.txt'), ...flags]);
    const whole = await score();
    expect(whole.logProbabilities).toHaveLength(whole.scoredTokens);
    expect(whole.logProbabilities.every((value) => value <= 0)).toBe(true);
    expect(whole.perplexity).toBeGreaterThan(1);
    expect(whole.perplexity).toBeLessThan(500);
    for (const flags of [
      ['--policy', 'packets', '--prefill-chunk', '3', '--budget', '5MB'],
      ['--kernels', 'wasm'],
    ])
      expect(await score(...flags)).toEqual({
        ...whole,
        policy: expect.any(String),
        backend: expect.objectContaining({ name: 'cpu' }),
        backendChoice: flags.includes('--kernels') ? null : whole.backendChoice,
      });
    expect(whole.backendChoice).toMatchObject({
      backend: 'cpu',
      reason: expect.stringMatching(/^Cannot open CUDA: /),
    });
    const text = await waybill(['score', '-m', draft, '--text', at('text.txt'), '-q']);
    expect(text).toMatchObject({ code: 0, stderr: '' });
    expect(text.stdout).toContain(`perplexity ${whole.perplexity.toFixed(3)}`);
    writeFileSync(at('none.txt'), '');
    expect(await failure(['score', '-m', draft, '--text', at('none.txt')])).toMatchObject({
      exit: 2,
      code: 'empty-text',
    });
  });
});

test('doctor names kernels, limits and what to do', async () => {
  const { code, stdout } = await waybill(['doctor']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^ok +kernels in use +/m);
  expect(stdout).toMatch(/^ok +WebAssembly floor .* hold at most /m);
  const { findings } = await waybillJson<{ findings: { name: string; state: string }[] }>(['doctor']);
  expect(findings.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['platform', 'kernels in use', 'native kernels', 'cache']),
  );
});

test('demo: five arms, one set of bits, a receipt that verifies; the second run prepares nothing', async () => {
  const receipt = at('demo.jsonl');
  const home = temporaryFolder();
  const first = await waybill(['demo', '--receipt', receipt], { home });
  expect(first.code).toBe(0);
  expect(first.stdout).toContain('bit-identical: 48/48 tokens, 192/192 logits digests');
  for (const policy of ['stream', 'packets', 'phase', 'resident \\*', 'resident-sparse \\*'])
    expect(first.stdout).toMatch(new RegExp(`^${policy} +[\\d.]+ `, 'm'));
  expect(first.stderr).toContain('preparing weights');
  expect(first.stderr.match(/hashing the checkpoint/g)).toHaveLength(1);
  expect((await waybill(['verify', receipt, '--model', target])).code).toBe(0);
  const second = await waybill(['demo', '--receipt', receipt, '-q'], { home });
  expect(second).toMatchObject({ code: 0, stderr: '' });
  expect(readdirSync(folder)).toContain('demo.jsonl.salt');
});
