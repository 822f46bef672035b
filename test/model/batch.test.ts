import { describe, expect, it } from 'vitest';
import { type BatchLimits, checkBatch, type ForwardBatch } from '../../src/model/batch.js';

const limits: BatchLimits = {
  maxRows: 4,
  maxLogitsRows: 2,
  slots: 2,
  capacity: 8,
  maxPositions: 16,
  vocabSize: 10,
};

function batch(
  rows: [slot: number, position: number, tokenId: number][],
  logitsRows: number[] = [],
): ForwardBatch {
  return {
    kind: 'prefill',
    rows: rows.map(([slot, position, tokenId]) => ({ slot, position, tokenId })),
    logitsRows,
  };
}

const accepted: Record<string, ForwardBatch> = {
  'the last of everything': batch(
    [
      [1, 7, 9],
      [0, 7, 0],
      [0, 6, 3],
      [1, 0, 0],
    ],
    [3, 0],
  ),
  'no logits': batch([[0, 0, 0]]),
  'the same row twice': batch([[0, 0, 0]], [0, 0]),
};

const refused: Record<string, { batch: ForwardBatch; code: string; message: string }> = {
  'no rows': { batch: batch([]), code: 'defect', message: '1 to 4' },
  'too many rows': {
    batch: batch([0, 1, 2, 3, 4].map((position) => [0, position, 0])),
    code: 'defect',
    message: '5 rows',
  },
  'too many logits rows': { batch: batch([[0, 0, 0]], [0, 0, 0]), code: 'defect', message: '3 rows' },
  'a logits row beyond the rows': { batch: batch([[0, 0, 0]], [1]), code: 'defect', message: 'row 1' },
  'a slot beyond the cache': { batch: batch([[2, 0, 0]]), code: 'defect', message: 'slot 2' },
  'two rows at one place': {
    batch: batch([
      [1, 3, 0],
      [1, 3, 1],
    ]),
    code: 'defect',
    message: 'same slot and position',
  },
  'a position beyond the cache': {
    batch: batch([[0, 8, 0]]),
    code: 'position-beyond-capacity',
    message: 'position 8: the KV cache holds 8 positions',
  },
  'a position beyond the model': {
    batch: batch([[0, 16, 0]]),
    code: 'position-beyond-model',
    message: 'position 16: the model has positions 0 to 15',
  },
  'a negative position': {
    batch: batch([[0, -1, 0]]),
    code: 'position-beyond-model',
    message: 'position -1',
  },
  'a fractional position': {
    batch: batch([[0, 0.5, 0]]),
    code: 'position-beyond-model',
    message: 'position 0.5',
  },
  'an id beyond the vocabulary': {
    batch: batch([[0, 0, 10]]),
    code: 'unknown-token-id',
    message: 'id 10: the model has ids 0 to 9',
  },
  'an id that is no number': { batch: batch([[0, 0, Number.NaN]]), code: 'unknown-token-id', message: 'NaN' },
};

describe('checkBatch', () => {
  for (const [name, value] of Object.entries(accepted)) {
    it(`accepts ${name}`, () => {
      expect(() => checkBatch(value, limits)).not.toThrow();
    });
  }
  for (const [name, { batch: value, code, message }] of Object.entries(refused)) {
    it(`refuses ${name}`, () => {
      expect(() => checkBatch(value, limits)).toThrow(
        expect.objectContaining({ code, message: expect.stringContaining(message) }),
      );
    });
  }
});
