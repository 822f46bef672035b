import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { NumericsError, UsageError } from '../../src/base/errors.js';
import { type GenerateOptions, generateOptions } from '../../src/generate/options.js';
import { checkFinite, greedyToken, sampleToken } from '../../src/generate/sampler.js';
import { sessionOptions } from '../../src/generate/session-options.js';
import { naiveSample } from './naive-sampler.js';

const seed = 20261130;
const sampling = (given: Partial<GenerateOptions>): GenerateOptions =>
  generateOptions({ temperature: 1, ...given });

// Few distinct values, so that equals are common; signed zeros, huge and subnormal ones
const logit = fc.oneof(
  fc.constantFrom(0, -0, 1, 1, -1, 2.5, 3e38, -3e38, 1e-42),
  fc.float({ noNaN: true, noDefaultInfinity: true, min: -20, max: 20 }),
);
const optionsOf = fc.record({
  temperature: fc.constantFrom(1, 0.7, 2, 1e-3, 1e-38, 1e38),
  topK: fc.constantFrom(0, 1, 2, 5, 1000),
  topP: fc.constantFrom(1, 0.9, 0.5, 1e-9, 0.999),
  minP: fc.constantFrom(0, 0.05, 0.5, 1),
  seed: fc.maxSafeNat(),
});

describe('sampleToken', () => {
  test('chooses as docs/numerics.md says, step by step', () => {
    fc.assert(
      fc.property(
        fc.array(logit, { minLength: 1, maxLength: 60 }),
        optionsOf,
        fc.nat(4000),
        (values, given, position) => {
          const logits = Float32Array.from(values);
          const options = sampling(given);
          expect(sampleToken(logits, position, options)).toBe(naiveSample(logits, position, options));
        },
      ),
      { seed, numRuns: 3000 },
    );
  });

  test('agrees on a vocabulary of real size', () => {
    const logits = Float32Array.from({ length: 50_272 }, (_, id) =>
      Math.fround(8 * Math.sin(id * 12.9898) + (id % 17)),
    );
    for (let position = 0; position < 8; position++) {
      const options = sampling({ topK: 60, topP: 0.9, seed: 5 });
      expect(sampleToken(logits, position, options)).toBe(naiveSample(logits, position, options));
    }
  });

  test('greedy: the largest, of equal ones the lowest id', () => {
    expect(greedyToken(Float32Array.of(1, 3, 3, 2))).toBe(1);
    expect(greedyToken(Float32Array.of(-0, 0))).toBe(0);
    expect(sampleToken(Float32Array.of(1, 3, 3, 2), 9, generateOptions())).toBe(1);
    for (const given of [{ topK: 1 }, { topP: 1e-12 }, { temperature: 1e-37 }])
      expect(sampleToken(Float32Array.of(1, 2, 3.5, 2), 9, sampling(given))).toBe(2);
  });

  test('equals of the k-th stay', () => {
    const seen = new Set<number>();
    for (let position = 0; position < 200; position++)
      seen.add(sampleToken(Float32Array.of(1, 1, 1, 0), position, sampling({ topK: 1 })));
    expect([...seen].sort()).toEqual([0, 1, 2]);
  });

  test('draws by the probabilities', () => {
    const probabilities = [0.5, 0.25, 0.15, 0.1];
    const logits = Float32Array.from(probabilities, Math.log);
    const draws = 40_000;
    const counts = probabilities.map(() => 0);
    for (let position = 0; position < draws; position++)
      counts[sampleToken(logits, position, sampling({ seed: 77 }))]!++;
    const chiSquare = counts.reduce(
      (sum, count, id) => sum + (count - draws * probabilities[id]!) ** 2 / (draws * probabilities[id]!),
      0,
    );
    expect(chiSquare).toBeLessThan(16.27); // 99.9 % of 3 degrees of freedom; the seed is fixed, so this is no chance
  });

  test('depends on seed and position, on nothing that was drawn before', () => {
    const logits = Float32Array.from({ length: 500 }, (_, id) => Math.sin(id));
    const at = (position: number, key = 1) => sampleToken(logits, position, sampling({ seed: key }));
    const forwards = Array.from({ length: 50 }, (_, position) => at(position));
    const backwards = Array.from({ length: 50 }, (_, index) => at(49 - index)).reverse();
    expect(backwards).toEqual(forwards);
    expect(new Set(forwards).size).toBeGreaterThan(20);
    expect(Array.from({ length: 50 }, (_, position) => at(position, 2))).not.toEqual(forwards);
  });
});

test('checkFinite names id, value and position', () => {
  for (const value of [Number.NaN, Infinity, -Infinity]) {
    const check = () => checkFinite(Float32Array.of(0, value), 12);
    expect(check).toThrow(NumericsError);
    expect(check).toThrow(`position 12: the logit of id 1 is ${value}`);
  }
  checkFinite(Float32Array.of(3.4e38, -0), 0);
});

describe('options', () => {
  test('are greedy unless said otherwise, and frozen', () => {
    const options = generateOptions({ temperature: undefined } as never);
    expect(options).toEqual({
      maxNewTokens: 128,
      temperature: 0,
      topK: 0,
      topP: 1,
      minP: 0,
      seed: 0,
      stop: [],
      ignoreEos: false,
    });
    expect(Object.isFrozen(options) && Object.isFrozen(options.stop)).toBe(true);
  });

  test.each<[Record<string, unknown>, string]>([
    [{ maxNewTokens: 0 }, 'bad-option'],
    [{ maxNewTokens: 1.5 }, 'bad-option'],
    [{ temperature: Number.NaN }, 'bad-option'],
    [{ temperature: -1 }, 'bad-option'],
    [{ temperature: Infinity }, 'bad-option'],
    [{ temperature: 1e-46 }, 'bad-option'],
    [{ temperature: 1e39 }, 'bad-option'],
    [{ temperature: 1, topK: -1 }, 'bad-option'],
    [{ temperature: 1, topP: 0 }, 'bad-option'],
    [{ temperature: 1, topP: 1.1 }, 'bad-option'],
    [{ temperature: 1, topP: '0.5' }, 'bad-option'],
    [{ temperature: 1, minP: -0.1 }, 'bad-option'],
    [{ temperature: 1, seed: 2 ** 53 }, 'bad-option'],
    [{ stop: [''] }, 'bad-option'],
    [{ stop: 'text' }, 'bad-option'],
    [{ max_new_tokens: 4 }, 'bad-option'],
    [{ topK: 5 }, 'option-without-effect'],
    [{ minP: 0.5 }, 'option-without-effect'],
  ])('%j is refused: %s', (given, code) => {
    const make = () => generateOptions(given as never);
    expect(make).toThrow(UsageError);
    expect(make).toThrow(expect.objectContaining({ code }));
  });

  test.each([
    { threads: 0 },
    { slots: 1.5 },
    { policy: 'magic' },
    { kv: 'f8' },
    { contextPositions: 0 },
    { budget: 5 },
  ])('session options %j are refused', (given) =>
    expect(() => sessionOptions({ model: 'm', ...given } as never)).toThrow(
      expect.objectContaining({ code: 'bad-option' }),
    ),
  );
});
