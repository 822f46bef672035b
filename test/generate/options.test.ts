import { expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.js';
import { generateOptions } from '../../src/generate/options.js';
import { sessionOptions } from '../../src/generate/session-options.js';

/** What callers without a type checker may hand in. */
const openWith = (given: object) => sessionOptions(given as Parameters<typeof sessionOptions>[0]);
const generateWith = (given: object) => generateOptions(given as Parameters<typeof generateOptions>[0]);

function refusal(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return error;
  }
}

test.each([
  [{}, 'Cannot use "model" undefined: want the folder of a checkpoint, or a hub id'],
  [{ model: 5 }, 'Cannot use "model" 5: want the folder of a checkpoint, or a hub id'],
  [{ model: 'm', revision: 1 }, 'Cannot use "revision" 1: want text, or null for none'],
  [{ model: 'm', prepared: {} }, 'Cannot use "prepared" {}: want text, or null for none'],
  [{ model: 'm', kv: 'x' }, 'Cannot use "kv" "x": want one of f16, f32'],
  [{ model: 'm', kv: ['f16'] }, 'Cannot use "kv" ["f16"]: want one of f16, f32'],
  [{ model: 'm', threads: Number.NaN }, 'Cannot use "threads" NaN: want an integer of at least 1'],
])('sessions refuse %j in words', (given, message) => {
  const refused = refusal(() => openWith(given));
  expect(refused).toBeInstanceOf(UsageError);
  expect(refused).toMatchObject({ code: 'bad-option', message });
});

test.each([
  [{ stop: [''] }, 'Cannot use "stop" [""]: want a list of strings that are not empty'],
  [{ stop: 'x' }, 'Cannot use "stop" "x": want a list of strings that are not empty'],
  [{ topP: 0 }, 'Cannot use "topP" 0: want a number above 0 and at most 1'],
  [{ maxNewTokens: '4' }, 'Cannot use "maxNewTokens" "4": want an integer of at least 1'],
])('generations refuse %j in words', (given, message) => {
  expect(refusal(() => generateWith(given))).toMatchObject({ code: 'bad-option', message });
});

test.each(['models/here', null, undefined, ['m']])('options that are no record are refused: %j', (given) => {
  expect(refusal(() => openWith(given as object))).toMatchObject({
    code: 'bad-option',
    message: expect.stringMatching(/^Cannot use the options .+: want a record such as \{ model: /),
  });
});
