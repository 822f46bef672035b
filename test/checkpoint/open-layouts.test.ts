import { readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';

const folders = [
  ...readdirSync('models').map((name) => `models/${name}`),
  ...readdirSync('test/fixtures/layouts').map((name) => `test/fixtures/layouts/${name}`),
];

test.each(folders)('%s opens', async (folder) => {
  const checkpoint = await openCheckpoint(folder);
  expect(checkpoint.description.matrices.at(-1)?.id).toBe('head');
  await checkpoint.close();
});
