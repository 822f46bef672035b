import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { balancedOrder, orderProblem, spelledOrder, warmUpOrder } from '../../src/lab/schedule.js';

const names = (arms: number): string[] => Array.from({ length: arms }, (_, index) => `arm-${index}`);

describe('a balanced order', () => {
  test('has each arm once a block and once at each place of a square, whatever the seed', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 7 }),
        fc.integer({ min: 1, max: 6 }),
        fc.nat(),
        (arms, squares, seed) => {
          const blocks = arms * squares;
          const order = balancedOrder(arms, blocks, seed);
          expect(
            orderProblem(
              names(arms),
              blocks,
              order.map(({ arm }) => `arm-${arm}`),
            ),
          ).toBeNull();
          expect(order.map(({ block, position }) => block * arms + position)).toEqual(
            Array.from({ length: arms * blocks }, (_, index) => index),
          );
        },
      ),
      { numRuns: 100 },
    );
  });

  test('of two arms is AB BA or BA AB in each two blocks, and the seed decides which', () => {
    const spell = (seed: number) =>
      balancedOrder(2, 20, seed)
        .map(({ arm }) => 'AB'[arm])
        .join('')
        .match(/..../g)!;
    for (const square of spell(5)) expect(['ABBA', 'BAAB']).toContain(square);
    expect(spell(5)).toEqual(spell(5));
    expect(new Set(Array.from({ length: 40 }, (_, seed) => spell(seed).join(''))).size).toBeGreaterThan(30);
    expect(new Set(spell(5)).size).toBe(2);
  });

  test('of an even number of arms has each follow each other one equally often', () => {
    const order = balancedOrder(4, 4, 9);
    const follows = new Map<string, number>();
    for (let block = 0; block < 4; block++) {
      const row = order.filter((trial) => trial.block === block).map(({ arm }) => arm);
      for (let place = 1; place < 4; place++) {
        const key = `${row[place - 1]}>${row[place]}`;
        follows.set(key, (follows.get(key) ?? 0) + 1);
      }
    }
    expect(follows.size).toBe(12);
    expect(new Set(follows.values())).toEqual(new Set([1]));
  });

  test('cannot be had for blocks that are no multiple of the arms', () => {
    expect(() => balancedOrder(3, 10, 1)).toThrow(RangeError);
  });
});

test('warm-ups run every arm in each round', () => {
  const order = warmUpOrder(3, 4, 1);
  for (let round = 0; round < 4; round++) expect(new Set(order.slice(3 * round, 3 * round + 3)).size).toBe(3);
});

describe('a spelled order is refused', () => {
  const ab = ['A', 'B'];
  test.each([
    ['all A, then all B', 4, 'AAAABBBB', 'repeats an arm'],
    ['fixed ABAB', 4, 'ABABABAB', 'more than once'],
    ['half AB, half BA', 4, 'ABABBABA', 'more than once'],
    ['too short', 4, 'ABBA', 'it has 4 trials, want 8'],
    ['of an unknown arm', 2, 'ABBC', '"C" is not one of the arms'],
    ['over an odd number of blocks', 1, 'AB', 'cannot be balanced'],
  ])('%s', (_, blocks, order, reason) => {
    expect(orderProblem(ab, blocks, order.split(''))).toContain(reason);
  });

  test('and accepted when it is balanced', () => {
    expect(orderProblem(ab, 4, 'ABBABAAB'.split(''))).toBeNull();
    expect(spelledOrder(ab, ['B', 'A'])).toEqual([
      { block: 0, position: 0, arm: 1 },
      { block: 0, position: 1, arm: 0 },
    ]);
  });
});
