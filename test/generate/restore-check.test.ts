import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { generateOptions } from '../../src/generate/options.js';
import { checkRestored, type RestoredRequest } from '../../src/generate/restore-check.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import { models, withSession } from './models.js';
import { minimumOf } from './restore-support.js';

const generating = generateOptions({ maxNewTokens: 5, ignoreEos: true, temperature: 0.7, seed: 3 });
const prompts = [[5, 6, 7, 8, 9], [11]];

async function ran(name: string, policy: SessionOptions['policy']) {
  const budgetBytes = await minimumOf({ model: models[name]!, policy, slots: 2 });
  let options!: SessionOptions;
  let tensors = 0;
  let weights = { path: '', position: 0 };
  const requests: RestoredRequest[] = [];
  await withSession(name, { policy, budgetBytes, slots: 2 }, async (session) => {
    const generation = session.generate(prompts, generating);
    for await (const _ of generation);
    requests.push(...generation.outcome.requests);
    options = session.plan.options;
    const { description, weightsFile, tensor } = session.plan.prepared;
    const { matrices, vectors, tables } = description;
    tensors =
      matrices.length + vectors.length + tables.filter(({ id }) => id === 'position-embedding').length;
    weights = { path: weightsFile.path, position: tensor(matrices[0]!.id).byteOffset };
  });
  return { options, requests, tensors, weights };
}

describe('a restored model', () => {
  test.each([
    ['opt-books-draft', 'packets'],
    ['reglu-books', 'stream'],
  ] as const)('%s has the weights of the manifest and the logits of %s', async (name, policy) => {
    const { options, requests, tensors } = await ran(name, policy);
    const check = await checkRestored(options, requests, generating);
    expect(check.difference).toBeNull();
    expect(check.logits).toBe(10);
    expect(check.weights).toBeGreaterThanOrEqual(tensors);
    expect(check.weightBytes).toBeGreaterThan(0);
  });

  test('names the first logits row that differs', async () => {
    const { options, requests } = await ran('opt-books-draft', 'packets');
    const [first, second] = requests as [RestoredRequest, RestoredRequest];
    const logitsDigests = second.logitsDigests.with(1, '0'.repeat(64));
    const changed = [first, { ...second, logitsDigests }];
    const { difference } = await checkRestored(options, changed, generating);
    expect(difference).toEqual({
      what: 'logits',
      where: 'request 1, token 1',
      expected: '0'.repeat(64),
      found: second.logitsDigests[1],
    });
    const longer = [first, { ...second, logitsDigests: [...second.logitsDigests, '1'.repeat(64)] }];
    expect((await checkRestored(options, longer, generating)).difference).toEqual({
      what: 'logits',
      where: 'number of rows',
      expected: '11',
      found: '10',
    });
  });

  test('names a weight that is not that of the manifest', async () => {
    const { options, requests, weights } = await ran('opt-books-draft', 'packets');
    const file = openSync(weights.path, 'r+');
    const byte = new Uint8Array(1);
    readSync(file, byte, 0, 1, weights.position);
    try {
      writeSync(file, Uint8Array.of(byte[0]! ^ 1), 0, 1, weights.position);
      const { difference } = await checkRestored(options, requests, generating);
      expect(difference).toMatchObject({ what: 'weight' });
      expect(difference!.found).not.toBe(difference!.expected);
    } finally {
      writeSync(file, byte, 0, 1, weights.position);
      closeSync(file);
    }
  });
});
