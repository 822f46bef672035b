import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openTokenizer } from '../../src/checkpoint/tokenizer.js';

const folders = {
  'opt-books-target': join(import.meta.dirname, '../../models/opt-books-target'),
  'opt-vocab-merges': join(import.meta.dirname, 'fixtures/opt-vocab-merges'),
  'byte-fallback': join(import.meta.dirname, 'fixtures/byte-fallback'),
  'split-regex': join(import.meta.dirname, 'fixtures/split-regex'),
};
const seed = 20_261_130;
const settings = { seed, numRuns: 150 };

/** Emoji with joiners, combining marks, CJK, right-to-left, astral letters, controls, replacement characters. */
const awkward = fc.constantFrom(
  '👨‍👩‍👧',
  '🏳️‍🌈',
  'e\u0301',
  '日本語',
  'עברית',
  '𝒜',
  '\u0000',
  '\uFFFD',
  '\uFEFF',
  '</s>',
  ' ',
  '\r\n',
);
const texts = fc
  .array(fc.oneof(awkward, fc.string({ unit: 'grapheme', maxLength: 8 })), { maxLength: 12 })
  .map((parts) => parts.join(''));

describe.each(Object.entries(folders))('stream of %s', (_name, folder) => {
  it('concatenates to decode for random ids, invalid UTF-8 and vocabulary padding among them', async () => {
    const tokenizer = await openTokenizer(folder);
    const ids = fc.array(
      fc.oneof(
        fc.integer({ min: 0, max: tokenizer.vocabularySize + 40 }),
        // Single bytes stand at the beginning of all these vocabularies: many broken characters.
        fc.integer({ min: 0, max: 260 }),
      ),
      { maxLength: 40 },
    );
    fc.assert(
      fc.property(ids, fc.boolean(), (given, skipSpecialTokens) => {
        const stream = tokenizer.stream({ skipSpecialTokens });
        const parts = given.map((id) => stream.push(id));
        const tail = stream.flush();
        expect(parts.join('') + tail).toBe(tokenizer.decode(given, { skipSpecialTokens }));
        // A second text on the same tokenizer starts clean.
        expect(stream.flush()).toBe('');
      }),
      settings,
    );
  });

  it('never ends inside a character, and what it showed stays', async () => {
    const tokenizer = await openTokenizer(folder);
    fc.assert(
      fc.property(texts, (text) => {
        const given = tokenizer.encode(text);
        const whole = tokenizer.decode(given);
        const stream = tokenizer.stream();
        let shown = '';
        for (const id of given) {
          const part = stream.push(id);
          shown += part;
          expect(part).not.toMatch(/\p{Surrogate}/u);
          expect(whole.startsWith(shown)).toBe(true);
        }
        expect(shown + stream.flush()).toBe(whole);
      }),
      settings,
    );
  });

  it('decodes ids beyond the vocabulary to nothing', async () => {
    const tokenizer = await openTokenizer(folder);
    const beyond = [tokenizer.vocabularySize, tokenizer.vocabularySize + 7, 2 ** 31, 2 ** 40, -1];
    expect(tokenizer.decode(beyond)).toBe('');
    const stream = tokenizer.stream();
    expect(beyond.map((id) => stream.push(id)).join('') + stream.flush()).toBe('');
    expect(tokenizer.decode([])).toBe('');
    const ids = tokenizer.encode('héllo 日本', { addSpecialTokens: false });
    const padded = ids.flatMap((id) => [id, tokenizer.vocabularySize + 3]);
    expect(tokenizer.decode(padded)).toBe(tokenizer.decode(ids));
  });
});

describe('byte-level text', () => {
  it('gives back every well-formed text', async () => {
    const tokenizer = await openTokenizer(folders['opt-vocab-merges']);
    fc.assert(
      fc.property(texts, (text) => {
        const ids = tokenizer.encode(text);
        expect(tokenizer.decode(ids.slice(1), { skipSpecialTokens: false })).toBe(text);
        expect(ids[0]).toBe(2);
      }),
      settings,
    );
  });

  it('withholds a character until its last byte and U+FFFD until it is certain', async () => {
    const tokenizer = await openTokenizer(folders['opt-vocab-merges']);
    const ids = tokenizer.encode('🙂!', { addSpecialTokens: false });
    const stream = tokenizer.stream();
    const parts = ids.map((id) => stream.push(id));
    expect(parts.filter((part) => part !== '')).toEqual(['🙂', '!']);
    expect(stream.flush()).toBe('');

    const broken = tokenizer.stream();
    expect(
      ids
        .slice(0, 2)
        .map((id) => broken.push(id))
        .join(''),
    ).toBe('');
    expect(broken.flush()).toBe('\uFFFD');
  });

  it('adds BOS once and takes a literal "</s>" as the token', async () => {
    const tokenizer = await openTokenizer(folders['opt-vocab-merges']);
    expect(tokenizer.encode('').join()).toBe('2');
    expect(tokenizer.encode('</s>').join()).toBe('2,2');
    expect(tokenizer.encode('</s>', { addSpecialTokens: false }).join()).toBe('2');
  });
});
