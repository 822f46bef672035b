import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  cutIntoPieces,
  largestPieceBytes,
  smallestPieceBytes,
  storedRowBytes,
  storedRows,
} from '../../src/acquire/pieces.js';
import type { MatrixDescription } from '../../src/checkpoint/model-description.js';

const matrices: fc.Arbitrary<MatrixDescription> = fc.record({
  id: fc.constant('layers.0.first'),
  role: fc.constant('first' as const),
  layer: fc.constant(0),
  inputs: fc.integer({ min: 1, max: 3000 }),
  outputs: fc.integer({ min: 1, max: 3000 }),
  type: fc.constantFrom('f32' as const, 'f16' as const),
  layout: fc.constantFrom('input-major' as const, 'output-major' as const),
  neuronAxis: fc.constant(null),
  biasId: fc.constant(null),
  sourceTensor: fc.constant(''),
});

test('pieces cover a matrix in order, within the limit, in whole units', () => {
  fc.assert(
    fc.property(matrices, fc.double({ min: 1, max: 40, noNaN: true }), (matrix, factor) => {
      const limit = Math.floor(smallestPieceBytes(matrix) * factor);
      const pieces = cutIntoPieces(matrix, limit);
      const unit = matrix.layout === 'input-major' ? 128 : 16;
      let row = 0;
      for (const piece of pieces) {
        expect(piece.rowBegin).toBe(row);
        expect(piece.rowBegin % unit).toBe(0);
        expect(piece.byteOffset).toBe(row * storedRowBytes(matrix));
        expect(piece.byteOffset % 4).toBe(0);
        expect(piece.byteLength).toBe((piece.rowEnd - row) * storedRowBytes(matrix));
        expect(piece.byteLength).toBeLessThanOrEqual(limit);
        row = piece.rowEnd;
      }
      expect(row).toBe(storedRows(matrix));
      expect(Math.max(...pieces.map(({ byteLength }) => byteLength))).toBe(largestPieceBytes(matrix, limit));
    }),
    { seed: 1130 },
  );
});

test('a limit below one unit is refused', () => {
  const [matrix] = fc.sample(matrices, { numRuns: 1, seed: 4 });
  const limit = smallestPieceBytes(matrix!) - 1;
  expect(largestPieceBytes(matrix!, limit)).toBe(Infinity);
  expect(() => cutIntoPieces(matrix!, limit)).toThrow(RangeError);
});
