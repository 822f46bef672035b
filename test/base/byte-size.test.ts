import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatByteSize, parseByteSize } from '../../src/base/byte-size.js';
import { UsageError } from '../../src/base/errors.js';

describe('parseByteSize', () => {
  test.each([
    ['0', 0],
    ['1', 1],
    ['5033164800', 5033164800],
    ['4800MiB', 5033164800],
    ['2GB', 2_000_000_000],
    ['2GiB', 2_147_483_648],
    ['1kB', 1000],
    ['1KiB', 1024],
    ['1MB', 1e6],
    ['3TB', 3e12],
    ['1TiB', 2 ** 40],
    ['2147483648', 2 ** 31],
    ['4294967297', 2 ** 32 + 1],
    ['1.5GiB', 1_610_612_736],
    ['0.5KiB', 512],
    ['1.25kB', 1250],
    ['0.0009765625KiB', 1],
    ['1.0000000000GB', 1_000_000_000],
    [' 4800 MiB ', 5033164800],
    ['12B', 12],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
    ['8191TiB', 8191 * 2 ** 40],
  ])('%s is %d bytes', (text, bytes) => {
    expect(parseByteSize(text)).toBe(bytes);
  });

  test.each([
    '',
    ' ',
    '-1',
    '+1',
    '1.5',
    '1.0',
    '1.5B',
    '.5GiB',
    '1.GiB',
    'NaN',
    'Infinity',
    '1e9',
    '0x10',
    '1_000',
    '1,5GiB',
    'MiB',
    '1 2MiB',
    '4800mib',
    '2gb',
    '2KB',
    '2G',
    '2 Gi',
    '1.0001kB',
    '0.3KiB',
    '9007199254740992',
    '8192TiB',
    '99999999999999999999GiB',
    '1GiB\u0000',
    '1constructor',
  ])('refuses %j', (text) => {
    expect(() => parseByteSize(text, '--budget')).toThrow(UsageError);
    expect(() => parseByteSize(text, '--budget')).toThrow(expect.objectContaining({ code: 'byte-size' }));
    expect(() => parseByteSize(text, '--budget')).toThrow(/^Cannot read --budget from "/);
  });

  test('decimal fractions are exact at every length', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2 ** 33 }),
        fc.integer({ min: 0, max: 999_999_999 }),
        (whole, rest) => {
          const text = `${whole}.${String(rest).padStart(9, '0')}GB`;
          const wanted = BigInt(whole) * 1_000_000_000n + BigInt(rest);
          if (wanted <= BigInt(Number.MAX_SAFE_INTEGER)) expect(parseByteSize(text)).toBe(Number(wanted));
          else expect(() => parseByteSize(text)).toThrow(UsageError);
        },
      ),
      { seed: 20260301 },
    );
  });
});

describe('formatByteSize', () => {
  test.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1 KiB'],
    [5033164800, '4.688 GiB'],
    [1_610_612_736, '1.5 GiB'],
    [2 ** 40, '1 TiB'],
    [1_048_575, '1023.999 KiB'],
  ])('%d is %s', (bytes, text) => {
    expect(formatByteSize(bytes)).toBe(text);
  });
});
