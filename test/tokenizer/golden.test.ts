import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { openTokenizer } from '../../src/checkpoint/tokenizer.js';

/** Written with transformers 5.18.0 and tokenizers 0.23.2. */
interface Golden {
  readonly texts: readonly {
    readonly text: string;
    readonly ids: number[];
    readonly idsNoSpecial: number[];
    readonly decoded: string;
    readonly skipped: string;
  }[];
  readonly decodes: readonly { readonly ids: number[]; readonly decoded: string; readonly skipped: string }[];
}

const fixtures = join(import.meta.dirname, 'fixtures');
const read = <T>(path: string): T => JSON.parse(readFileSync(path, 'utf8')) as T;
const readPacked = <T>(path: string): T =>
  JSON.parse(brotliDecompressSync(readFileSync(path)).toString()) as T;

describe.each(['opt-vocab-merges', 'added-tokens', 'byte-fallback', 'split-regex'])(
  '%s equals transformers',
  (name) => {
    const golden = readPacked<Golden>(join(fixtures, name, 'golden.json.br'));

    it('encodes', async () => {
      const tokenizer = await openTokenizer(join(fixtures, name));
      const encoded = golden.texts.map(({ text }) => ({
        text,
        ids: tokenizer.encode(text),
        idsNoSpecial: tokenizer.encode(text, { addSpecialTokens: false }),
      }));
      expect(encoded).toEqual(
        golden.texts.map(({ text, ids, idsNoSpecial }) => ({ text, ids, idsNoSpecial })),
      );
    });

    it('decodes texts and random ids', async () => {
      const tokenizer = await openTokenizer(join(fixtures, name));
      const cases = [...golden.texts, ...golden.decodes];
      expect(cases.length).toBeGreaterThan(60);
      for (const { ids, decoded, skipped } of cases) {
        expect({ ids, text: tokenizer.decode(ids, { skipSpecialTokens: false }) }).toEqual({
          ids,
          text: decoded,
        });
        expect({ ids, text: tokenizer.decode(ids) }).toEqual({ ids, text: skipped });
      }
    });
  },
);

describe('embedded models', () => {
  const models = join(import.meta.dirname, '../../models');
  const golden = join(import.meta.dirname, '../fixtures');
  const texts = read<{ text: string; ids: number[]; ids_no_special: number[]; decoded: string }[]>(
    join(golden, 'tokenizer_golden.json'),
  );

  it.each(['opt-books-target', 'opt-books-draft', 'reglu-books'])('%s', async (name) => {
    const tokenizer = await openTokenizer(join(models, name));
    expect(tokenizer.source).toBe('tokenizer.json');
    expect(tokenizer.vocabularySize).toBe(8192);
    for (const { text, ids, ids_no_special, decoded } of texts) {
      expect(tokenizer.encode(text)).toEqual(ids);
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids_no_special);
      expect(tokenizer.decode(ids)).toBe(decoded);
    }
    const { cases } = read<{
      cases: { prompt_ids: number[]; prompt_text: string; greedy_ids: number[]; greedy_text: string }[];
    }>(join(golden, 'golden', `${name}.json`));
    expect(cases.length).toBeGreaterThan(0);
    for (const { prompt_ids, prompt_text, greedy_ids, greedy_text } of cases) {
      expect(tokenizer.decode(prompt_ids)).toBe(prompt_text);
      expect(tokenizer.decode(greedy_ids)).toBe(greedy_text);
    }
  });
});
