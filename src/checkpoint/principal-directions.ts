import { symmetricEigen } from './symmetric-eigen.js';

/**
 * The directions in which rows of a sample reach furthest: the leading eigenvectors of X^T X for a sample X of S rows and K
 * columns, found through the S x S matrix X X^T.
 * At most `count` of unit length, fewer where the sample has fewer dimensions; the rest are zeros.
 */
export function principalDirections(
  rows: readonly Float32Array[],
  inputs: number,
  count: number,
): Float64Array[] {
  const size = rows.length;
  const gram = Array.from({ length: size }, () => new Float64Array(size));
  for (let a = 0; a < size; a += 1) {
    for (let b = 0; b <= a; b += 1) {
      let sum = 0;
      for (let i = 0; i < inputs; i += 1) sum += rows[a]![i]! * rows[b]![i]!;
      gram[a]![b] = sum;
      gram[b]![a] = sum;
    }
  }
  const { values, vectors } = symmetricEigen(gram);
  const order = Array.from({ length: size }, (_, index) => index).sort(
    (a, b) => values[b]! - values[a]! || a - b,
  );
  const largest = order.length === 0 ? 0 : values[order[0]!]!;
  return Array.from({ length: count }, (_, place) => {
    const direction = new Float64Array(inputs);
    const index = order[place];
    if (index === undefined || values[index]! <= largest * 1e-12) return direction;
    for (let a = 0; a < size; a += 1) {
      const weight = vectors[index]![a]!;
      const row = rows[a]!;
      for (let i = 0; i < inputs; i += 1) direction[i]! += weight * row[i]!;
    }
    const length = Math.sqrt(direction.reduce((sum, value) => sum + value * value, 0));
    return direction.map((value) => value / length);
  });
}
