import { describe, expect, it } from 'vitest';
import { philox4x32, philoxWords, uniform } from '../../src/base/philox.js';

describe('Philox 4x32-10', () => {
  // The three "philox4x32 10" lines of tests/kat_vectors in DEShawResearch/random123.
  it.each([
    [
      [0, 0, 0, 0],
      [0, 0],
      [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    ],
    [
      [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff],
      [0xffffffff, 0xffffffff],
      [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    ],
    [
      [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      [0xa4093822, 0x299f31d0],
      [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    ],
  ] as const)('gives the published words for counter %j and key %j', (counter, key, words) => {
    expect(philox4x32(counter, key)).toEqual([...words]);
  });

  it('takes the seed as key, position and draw as counter, low words first', () => {
    const seed = 0x123456789abcd;
    const position = 0x1fedcba987654;
    const draw = 0x100000002;
    const words = philox4x32([0xba987654, 0x1fedc, 2, 1], [0x6789abcd, 0x12345]);
    expect(philoxWords(seed, position, draw)).toEqual(words);
    expect(philoxWords(BigInt(seed), position, draw)).toEqual(words);
    expect(philoxWords(2n ** 64n - 1n, 0, 0)).toEqual(philox4x32([0, 0, 0, 0], [0xffffffff, 0xffffffff]));
  });

  it.each([-1, 0.5, Number.NaN, 2 ** 53, -1n, 2n ** 64n])('refuses the seed %s', (seed) => {
    expect(() => uniform(seed, 0, 0)).toThrow(RangeError);
  });

  it('makes uniform numbers from the leading bits', () => {
    const [first, second] = philoxWords(5, 6, 7);
    const exact = (BigInt(first) << 21n) | (BigInt(second) >> 11n);
    expect(uniform(5, 6, 7) * 2 ** 53).toBe(Number(exact));
  });

  it('spreads evenly over [0, 1) (seed 11)', () => {
    const bins = new Array<number>(16).fill(0);
    const draws = 16_000;
    for (let position = 0; position < draws; position++) {
      const u = uniform(11, position, 0);
      if (!(u >= 0 && u < 1)) expect.fail(`${u} at ${position}`);
      bins[Math.floor(u * 16)]! += 1;
    }
    const chiSquare = bins.reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0);
    expect(chiSquare).toBeLessThan(37.7); // 15 degrees of freedom, probability 0.001
  });
});
