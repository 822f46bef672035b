import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type JsonValue, parseJson } from '../../src/base/json.js';
import { expectError } from './support/errors.js';

test('reads what JSON.parse reads, for any value and spacing', () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 6 }), fc.constantFrom(0, 1, '\t'), (text, indent) => {
      const spaced = JSON.stringify(JSON.parse(text), null, indent);
      expect(parseJson(text, 'x')).toEqual(JSON.parse(text));
      expect(parseJson(Buffer.from(spaced), 'x')).toEqual(JSON.parse(text));
    }),
    { numRuns: 500 },
  );
});

test('on any text, agrees with JSON.parse on what is valid, duplicate keys and depth aside', () => {
  const piece = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '"a"',
    '\\',
    '1',
    '-',
    '.',
    'e',
    'tru',
    'true',
    'null',
    ' ',
    '0',
    '\n',
    '\\u00',
    'é',
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const text = pieces.join('');
      let expected: { value: JsonValue } | null = null;
      try {
        expected = { value: JSON.parse(text) as JsonValue };
      } catch {
        // Not JSON.
      }
      let read: { value: JsonValue } | null = null;
      try {
        read = { value: parseJson(text, 'x') };
      } catch (cause) {
        if ((cause as { code: string }).code === 'json-duplicate-key') return;
        if ((cause as { code: string }).code === 'json-number-range') return;
      }
      expect(read).toEqual(expected);
    }),
    { numRuns: 5000 },
  );
});

test('a repeated key is refused with its place', async () => {
  const error = await expectError(
    () => parseJson('{"a": 1,\n "b": {"c": 1, "c": 2}}', 'config.json'),
    'json-duplicate-key',
    'Reading "config.json" failed at line 2, column 16 (in "b"): the key "c" appears twice in one object',
  );
  expect(error.data).toMatchObject({ line: 2, column: 16, path: 'b' });
});

test('a key spelled with an escape is the same key', async () => {
  await expectError(() => parseJson('{"a": 1, "\\u0061": 2}', 'x'), 'json-duplicate-key', '"a"');
});

test('"__proto__" is a key like any other', async () => {
  const value = parseJson('{"__proto__": {"x": 1}}', 'x') as Record<string, unknown>;
  expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  expect(Object.keys(value)).toEqual(['__proto__']);
  await expectError(
    () => parseJson('{"__proto__": 1, "__proto__": 2}', 'x'),
    'json-duplicate-key',
    '__proto__',
  );
});

test.each(['NaN', '-Infinity', 'Infinity'])('%s is refused with its field', async (spelling) => {
  await expectError(
    () => parseJson(`{"rms_norm_eps": ${spelling}}`, 'config.json'),
    'json-syntax',
    `(in "rms_norm_eps"): found "${spelling}", a value is wanted`,
  );
});

test.each([
  ['', 'the end'],
  ['{"a": }', '"}"'],
  ['{"a" 1}', '":" is wanted'],
  ['{a: 1}', 'a key in quotes is wanted'],
  ['{"a": 1,}', 'a key in quotes is wanted'],
  ['[1,]', 'a value is wanted'],
  ['[1 2]', '"," or "]" is wanted'],
  ['01', 'a value is wanted'],
  ['+1', 'a value is wanted'],
  ['.5', 'a value is wanted'],
  ['1 2', 'after the end'],
  ['"\t"', 'inside a string'],
  ['"abc', 'the end inside a string'],
  ['"\\x"', 'unknown escape'],
  ['"\\u12g4"', 'four hexadecimal digits'],
  ['truely', 'a value is wanted'],
])('%j is refused', async (text, message) => {
  await expectError(() => parseJson(text, 'x'), 'json-syntax', message);
});

test('refuses a byte order mark, bytes that are no UTF-8, numbers beyond binary64', async () => {
  await expectError(() => parseJson(Buffer.from('\ufeff{}'), 'x'), 'json-byte-order-mark', 'byte order mark');
  await expectError(() => parseJson(Uint8Array.of(0x22, 0xff, 0x22), 'x'), 'json-invalid-utf8', 'UTF-8');
  await expectError(() => parseJson('[1e999]', 'x'), 'json-number-range', '1e999');
});

test('nesting and length are bounded', async () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  expect(parseJson(nested(64), 'x')).toBeDefined();
  await expectError(() => parseJson(nested(65), 'x'), 'json-too-deep', '64');
  await expectError(() => parseJson(nested(1_000_000), 'x'), 'json-too-deep', '64');
  await expectError(() => parseJson('[1]', 'x', { length: 2 }), 'json-too-long', 'at most 2');
});

test('a list of a million members is read', () => {
  const text = `[${'1,'.repeat(999_999)}1]`;
  expect((parseJson(text, 'x') as JsonValue[]).length).toBe(1_000_000);
});
