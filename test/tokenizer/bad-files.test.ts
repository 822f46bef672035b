import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.js';
import { openTokenizer } from '../../src/checkpoint/tokenizer.js';

const source = join(import.meta.dirname, 'fixtures/opt-vocab-merges');
const byteFallback = join(import.meta.dirname, 'fixtures/byte-fallback');
let folder = '';

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'waybill-tokenizer-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function copy(from: string): void {
  cpSync(from, folder, { recursive: true });
}

function rewrite(name: string, change: (text: string) => string): void {
  writeFileSync(join(folder, name), change(readFileSync(join(folder, name), 'utf8')));
}

async function failure(): Promise<InputError> {
  const error: unknown = await openTokenizer(folder).then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(InputError);
  const input = error as InputError;
  expect(input.message).not.toMatch(/\.$/);
  return input;
}

describe('vocab.json and merges.txt', () => {
  beforeEach(() => copy(source));

  it.each(['vocab.json', 'merges.txt'])('names a missing "%s"', async (name) => {
    rmSync(join(folder, name));
    const error = await failure();
    expect(error.code).toBe('tokenizer-file-missing');
    expect(error.message).toContain(`"${name}" is not`);
  });

  it.each<[string, string, (text: string) => string, string]>([
    ['a cut vocab.json', 'vocab.json', (text) => text.slice(0, -1), 'vocab.json'],
    ['a list for vocab.json', 'vocab.json', () => '[]', 'vocab.json'],
    ['an empty vocab.json', 'vocab.json', () => '{}', 'vocab.json'],
    ['two tokens of one id', 'vocab.json', (text) => text.replace('"<s>": 0', '"<s>": 1'), 'share the id 1'],
    ['a string id', 'vocab.json', (text) => text.replace('"<s>": 0', '"<s>": "0"'), '"<s>"'],
    ['a fractional id', 'vocab.json', (text) => text.replace('"<s>": 0', '"<s>": 0.5'), '"<s>"'],
    ['a merge of three', 'merges.txt', (text) => `${text}a b c\n`, 'line 402'],
    ['a merge of one', 'merges.txt', (text) => `${text}abc\n`, 'line 402'],
    ['a merge without its token', 'merges.txt', (text) => `${text}z z\n`, '"zz"'],
    ['a list for tokenizer_config.json', 'tokenizer_config.json', () => '[1]', 'tokenizer_config.json'],
    [
      'no JSON in special_tokens_map.json',
      'special_tokens_map.json',
      () => '{bos',
      'special_tokens_map.json',
    ],
    [
      'another class',
      'tokenizer_config.json',
      (text) => text.replace('GPT2Tokenizer', 'Qwen2Tokenizer'),
      '"Qwen2Tokenizer"',
    ],
  ])('refuses %s', async (_what, name, change, mention) => {
    rewrite(name, change);
    expect((await failure()).message).toContain(mention);
  });

  it('refuses merges that are not UTF-8', async () => {
    writeFileSync(join(folder, 'merges.txt'), Buffer.from([0x61, 0x20, 0xff, 0x0a]));
    expect((await failure()).message).toBe('Reading "merges.txt" failed: its bytes are not UTF-8');
  });

  it('reads merges with Windows line ends', async () => {
    const before = (await openTokenizer(folder)).encode('the quick brown');
    rewrite('merges.txt', (text) => text.replaceAll('\n', '\r\n'));
    expect((await openTokenizer(folder)).encode('the quick brown')).toEqual(before);
  });

  it('refuses an added token without a number', async () => {
    writeFileSync(join(folder, 'added_tokens.json'), '{"<x>": "1"}');
    expect((await failure()).message).toContain('"<x>"');
  });
});

describe('tokenizer.json', () => {
  beforeEach(() => copy(byteFallback));

  it.each<[string, (json: Record<string, unknown>) => unknown, string]>([
    ['a list', () => [], 'tokenizer-malformed'],
    ['no model', ({ model: _, ...rest }) => rest, 'tokenizer-malformed'],
    ['an unknown model', (json) => ({ ...json, model: { type: 'X', vocab: {} } }), 'tokenizer-malformed'],
    ['no vocabulary', (json) => ({ ...json, model: { type: 'BPE', merges: [] } }), 'tokenizer-malformed'],
    [
      'an unknown pre-tokenizer',
      (json) => ({ ...json, pre_tokenizer: { type: 'X' } }),
      'tokenizer-malformed',
    ],
    [
      'an unknown decoder',
      (json) => ({ ...json, decoder: { type: 'CTC' } }),
      'tokenizer-decoder-unsupported',
    ],
    ['no decoder', (json) => ({ ...json, decoder: null }), 'tokenizer-decoder-unsupported'],
    [
      'an added token without id',
      (json) => ({ ...json, added_tokens: [{ content: 'x' }] }),
      'tokenizer-malformed',
    ],
    ['added tokens that are no list', (json) => ({ ...json, added_tokens: {} }), 'tokenizer-malformed'],
  ])('refuses %s', async (_what, change, code) => {
    rewrite('tokenizer.json', (text) => JSON.stringify(change(JSON.parse(text) as Record<string, unknown>)));
    const error = await failure();
    expect(error.code).toBe(code);
    expect(error.message).toContain('"tokenizer.json"');
  });

  it('refuses a cut file', async () => {
    rewrite('tokenizer.json', (text) => text.slice(0, -2));
    const error = await failure();
    expect(error.code).toMatch(/^json-/);
    expect(error.message).toContain('"tokenizer.json"');
  });
});

it('says what works without a tokenizer', async () => {
  const error = await failure();
  expect(error.code).toBe('tokenizer-missing');
  expect(error.message).toContain('--prompt-ids works without a tokenizer');
  rmSync(folder, { recursive: true });
  expect((await failure()).code).toBe('tokenizer-missing');
});
