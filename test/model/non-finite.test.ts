import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { NumericsError } from '../../src/base/errors.js';
import { nonFiniteFinder } from '../../src/model/non-finite.js';
import { oracleBackend } from './backends.js';
import { Harness } from './harness.js';
import { llamaConfig, optConfig, type TinyWeights, tinyWeights } from './tiny-models.js';

let backend: Backend;
beforeAll(async () => {
  backend = await oracleBackend.open();
});
afterAll(() => backend.close());

/** Sets one weight. */
function spoiled(weights: TinyWeights, id: string, index: number, value: number): TinyWeights {
  const changed = weights.values.get(id)!.slice();
  changed[index] = value;
  return { ...weights, values: new Map([...weights.values, [id, changed]]) };
}

async function find(weights: TinyWeights, logitsRows: readonly number[]): Promise<unknown> {
  const harness = Harness.tiny(backend, weights, { capacity: 16, maxRows: 4 });
  const rows = [5, 6, 7].map((tokenId, position) => ({ slot: 0, position, tokenId }));
  const finder = nonFiniteFinder({ kind: 'prefill', rows, logitsRows });
  return harness.run(rows, logitsRows, 'prefill', finder).then(
    () => null,
    (error: unknown) => error,
  );
}

describe('nonFiniteFinder', () => {
  it('passes finite numbers', async () => {
    expect(await find(tinyWeights(optConfig(), 3), [2])).toBeNull();
    expect(await find(tinyWeights(llamaConfig(), 3), [0, 2])).toBeNull();
  });

  it('names op, layer and the first position', async () => {
    const error = await find(
      spoiled(tinyWeights(llamaConfig(), 3), 'layers.1.gate', 40 * 9, Number.NaN),
      [2],
    );
    expect(error).toBeInstanceOf(NumericsError);
    expect(error).toMatchObject({
      code: 'non-finite',
      data: { op: 'layers.1.gate', layer: 1, position: 0, value: 'NaN' },
    });
  });

  it('names the position whose token brought it', async () => {
    const weights = spoiled(tinyWeights(optConfig(), 3), 'token-embedding', 6 * 40, Number.POSITIVE_INFINITY);
    expect(await find(weights, [2])).toMatchObject({
      message: 'Cannot compute logits at position 1: "token-embedding" gave Infinity, want finite numbers',
    });
  });

  it('counts the rows behind the selection by the logits wanted', async () => {
    const weights = tinyWeights(optConfig({ tied: false }), 3);
    expect(await find(spoiled(weights, 'head', 0, Number.NaN), [2, 1])).toMatchObject({
      data: { op: 'head', layer: null, position: 2 },
    });
  });
});
