import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import { compareScores } from '../../src/generate/compare-scores.js';
import { openModel } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';
import { models } from './models.js';

const text =
  'The wind blew from the sea, and the rain came down on the roofs of the town. The king said no word.';
const opened = (options: Partial<SessionOptions>) => () =>
  openModel({ model: models['opt-books-draft']!, contextPositions: 64, logitsRows: 5, ...options });
const compare = (arm: Partial<SessionOptions>, reference: Partial<SessionOptions>) =>
  compareScores({ reference: opened(reference), arm: opened(arm) }, text, {});

test('an exact arm has the logits of the reference', async () => {
  const { arm, reference, distance } = await compare({ policy: 'packets' }, { policy: 'resident' });
  expect(distance).toEqual({ relativeL2: 0, top1Agreement: 1, equalDigests: true });
  expect(arm.score).toEqual(reference.score);
  expect([arm.policy, reference.policy, arm.passTokens]).toEqual(['packets', 'resident', 5]);
});

test('quantised arms lie apart, the fewer bits the farther, and leave no file behind', async () => {
  const spools = () => readdirSync(tmpdir()).filter((name) => name.startsWith('waybill-logits-'));
  const before = spools();
  const q8 = await compare({ policy: 'resident-q8' }, { policy: 'resident' });
  const q4 = await compare({ policy: 'resident-q4' }, { policy: 'resident' });
  expect([q8.arm.exact, q8.reference.exact]).toEqual([false, true]);
  expect(q8.distance.equalDigests).toBe(false);
  expect(q8.distance.relativeL2).toBeGreaterThan(0);
  expect(q4.distance.relativeL2).toBeGreaterThan(4 * q8.distance.relativeL2);
  expect(q4.distance.relativeL2).toBeLessThan(0.5);
  expect(q8.distance.top1Agreement).toBeGreaterThanOrEqual(q4.distance.top1Agreement);
  expect(q4.arm.weightBytes).toBeLessThan(q8.arm.weightBytes);
  expect(q8.arm.weightBytes).toBeLessThan(q8.reference.weightBytes);
  expect(q8.reference.score).toEqual(q4.reference.score);
  expect(spools().filter((name) => !before.includes(name))).toEqual([]);
});
