import { uniform } from '../base/philox.js';

/**
 * Orders of trials. In a balanced order every arm stands at every place of a block equally often within each square of
 * as many blocks as there are arms (AB BA for two), so that neither a slot's bias nor drift looks like an effect; which
 * square comes when is drawn from the seed.
 */
export interface Trial {
  readonly block: number;
  /** Place in the block. */
  readonly position: number;
  /** Index of the arm. */
  readonly arm: number;
}

/** Position words of the Philox counter, so that draws for different purposes never meet. */
const purposes = { labels: 1, rows: 2, warmUps: 3 } as const;

/**
 * The measured trials: `blocks` blocks in which each of `arms` arms runs once. `blocks` is a multiple of `arms`, or
 * `arms` is 1.
 */
export function balancedOrder(arms: number, blocks: number, seed: number): Trial[] {
  if (arms < 1 || blocks < 1 || blocks % arms !== 0) {
    throw new RangeError(`Cannot balance ${arms} arms over ${blocks} blocks: want a multiple of the arms`);
  }
  const trials: Trial[] = [];
  for (let square = 0; square * arms < blocks; square++) {
    const labels = shuffled(arms, seed, purposes.labels, square);
    const rows = shuffled(arms, seed, purposes.rows, square);
    for (const [index, row] of rows.entries()) {
      const block = square * arms + index;
      williamsRow(arms, row, square % 2 === 1).forEach((label, position) => {
        trials.push({ block, position, arm: labels[label]! });
      });
    }
  }
  return trials;
}

/**
 * A row of a Williams square (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
 * treatments", 1949): 0, 1, k-1, 2, k-2, ... shifted. With an even number of arms each follows each other one equally
 * often in one square, with an odd number in a square and its mirror image.
 */
function williamsRow(arms: number, shift: number, mirrored: boolean): number[] {
  const row: number[] = [];
  for (let place = 0; place < arms; place++) {
    const step = place % 2 === 0 ? arms - place / 2 : (place + 1) / 2;
    row.push((step + shift) % arms);
  }
  return mirrored ? row.reverse() : row;
}

/** Warm-ups: `rounds` rounds of every arm, each round in an order of its own. */
export function warmUpOrder(arms: number, rounds: number, seed: number): number[] {
  return Array.from({ length: rounds }, (_, round) => shuffled(arms, seed, purposes.warmUps, round)).flat();
}

/** 0 to length - 1 in random order (Fisher and Yates). */
function shuffled(length: number, seed: number, purpose: number, index: number): number[] {
  const order = Array.from({ length }, (_, place) => place);
  for (let last = length - 1; last > 0; last--) {
    const other = Math.floor(uniform(seed, index, purpose * 0x10000 + last) * (last + 1));
    [order[last], order[other]] = [order[other]!, order[last]!];
  }
  return order;
}

/** The trials of an order that a protocol spells out by arm names; `orderProblem` has accepted it. */
export function spelledOrder(names: readonly string[], order: readonly string[]): Trial[] {
  return order.map((name, index) => ({
    block: Math.floor(index / names.length),
    position: index % names.length,
    arm: names.indexOf(name),
  }));
}

/**
 * Why an order cannot separate drift from effect, or null where it can: each block holds each arm once, and within
 * each square of blocks every arm stands at every place once.
 */
export function orderProblem(
  names: readonly string[],
  blocks: number,
  order: readonly string[],
): string | null {
  const arms = names.length;
  const unknown = order.find((name) => !names.includes(name));
  if (unknown !== undefined) return `"${unknown}" is not one of the arms ${names.join(', ')}`;
  if (order.length !== arms * blocks) {
    return `it has ${order.length} trials, want ${arms * blocks} (${blocks} blocks of ${arms} arms)`;
  }
  if (blocks % arms !== 0)
    return `${blocks} blocks of ${arms} arms cannot be balanced, want a multiple of ${arms}`;
  for (let block = 0; block < blocks; block++) {
    if (new Set(order.slice(block * arms, (block + 1) * arms)).size !== arms) {
      return `block ${block + 1} repeats an arm and lacks another: drift would look like an effect, want each arm once in each block`;
    }
  }
  for (let first = 0; first < blocks; first += arms) {
    for (let position = 0; position < arms; position++) {
      const standing = names.map((_, block) => order[(first + block) * arms + position]);
      if (new Set(standing).size !== arms) {
        return `in blocks ${first + 1} to ${first + arms} an arm stands at place ${position + 1} more than once: the slot's bias would look like an effect, want each arm at each place once`;
      }
    }
  }
  return null;
}
