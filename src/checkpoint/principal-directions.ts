/**
 * The directions in which rows of a sample reach furthest: the leading eigenvectors of X^T X for a sample X of S rows and K
 * columns, found through the S x S matrix X X^T by cyclic Jacobi rotations (Golub and Van Loan, Matrix Computations, 8.5).
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
  const vectors = diagonalise(gram);
  const order = Array.from({ length: size }, (_, index) => index).sort(
    (a, b) => gram[b]![b]! - gram[a]![a]! || a - b,
  );
  const largest = order.length === 0 ? 0 : gram[order[0]!]![order[0]!]!;
  return Array.from({ length: count }, (_, place) => {
    const direction = new Float64Array(inputs);
    const index = order[place];
    if (index === undefined || gram[index]![index]! <= largest * 1e-12) return direction;
    for (let a = 0; a < size; a += 1) {
      const weight = vectors[a]![index]!;
      const row = rows[a]!;
      for (let i = 0; i < inputs; i += 1) direction[i]! += weight * row[i]!;
    }
    const length = Math.sqrt(direction.reduce((sum, value) => sum + value * value, 0));
    return direction.map((value) => value / length);
  });
}

const mostSweeps = 12;

/** Turns a symmetric matrix into its eigenvalues on the diagonal, in place; returns the eigenvectors as columns. */
function diagonalise(matrix: Float64Array[]): Float64Array[] {
  const size = matrix.length;
  const vectors = matrix.map((_, row) => new Float64Array(size).fill(1, row, row + 1));
  for (let sweep = 0; sweep < mostSweeps; sweep += 1) {
    let beside = 0;
    let on = 0;
    for (let p = 0; p < size; p += 1) {
      on += matrix[p]![p]! ** 2;
      for (let q = 0; q < p; q += 1) beside += matrix[p]![q]! ** 2;
    }
    if (beside <= on * 1e-24) break;
    for (let p = 0; p < size; p += 1) for (let q = p + 1; q < size; q += 1) rotate(matrix, vectors, p, q);
  }
  return vectors;
}

function rotate(matrix: Float64Array[], vectors: Float64Array[], p: number, q: number): void {
  const beside = matrix[p]![q]!;
  if (beside === 0) return;
  const ratio = (matrix[q]![q]! - matrix[p]![p]!) / (2 * beside);
  const t = (ratio >= 0 ? 1 : -1) / (Math.abs(ratio) + Math.sqrt(1 + ratio * ratio));
  const cosine = 1 / Math.sqrt(1 + t * t);
  const sine = t * cosine;
  const size = matrix.length;
  for (let k = 0; k < size; k += 1) {
    const row = matrix[k]!;
    const a = row[p]!;
    const b = row[q]!;
    row[p] = cosine * a - sine * b;
    row[q] = sine * a + cosine * b;
    const ofVectors = vectors[k]!;
    const x = ofVectors[p]!;
    const y = ofVectors[q]!;
    ofVectors[p] = cosine * x - sine * y;
    ofVectors[q] = sine * x + cosine * y;
  }
  const up = matrix[p]!;
  const low = matrix[q]!;
  for (let k = 0; k < size; k += 1) {
    const a = up[k]!;
    const b = low[k]!;
    up[k] = cosine * a - sine * b;
    low[k] = sine * a + cosine * b;
  }
}
