import { blockInputs } from '../ops.js';

const f = Math.fround;

/** The block rule of docs/numerics.md over `count` terms, each already rounded to binary32. */
export function blockSum(count: number, term: (index: number) => number): number {
  let y = 0;
  for (let block = 0; block < count; block += blockInputs) {
    const end = Math.min(block + blockInputs, count);
    let acc = 0;
    for (let index = block; index < end; index++) acc = f(acc + term(index));
    y = f(y + acc);
  }
  return y;
}

/**
 * The block rule over products `x[xStart + i] * w[i]`, i below `count`, going on from `y`. `xStart` lies on a block
 * boundary of the sum.
 */
export function blockDot(
  x: Float32Array,
  xStart: number,
  w: Float32Array,
  wStart: number,
  count: number,
  y: number,
): number {
  let sum = y;
  for (let block = 0; block < count; block += blockInputs) {
    const end = Math.min(block + blockInputs, count);
    let acc = 0;
    for (let i = block; i < end; i++) acc = f(acc + f(x[xStart + i]! * w[wStart + i]!));
    sum = f(sum + acc);
  }
  return sum;
}
