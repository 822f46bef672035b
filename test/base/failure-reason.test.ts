import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { failureReason } from '../../src/base/failure-reason.js';

const failureOf = (path: string) =>
  readFile(path).then(
    () => expect.fail(`${path} was read`),
    (cause: unknown) => failureReason(cause),
  );

test('errors of the system are words, without the path that the message names already', async () => {
  expect(await failureOf(join(tmpdir(), 'waybill-has-no-such-file'))).toBe('it does not exist');
  expect(await failureOf(tmpdir())).toBe('it is a folder');
  expect(await failureOf(join(process.execPath, 'below-a-file'))).toBe('a part of the path is no folder');
  expect(await failureOf(join(tmpdir(), 'n'.repeat(5000)))).toBe('the name is too long');
});

test('an unknown code stands for itself, and another error has its message without a full stop', () => {
  expect(failureReason(Object.assign(new Error('EXYZ: odd, read'), { code: 'EXYZ' }))).toBe('EXYZ');
  expect(failureReason(Object.assign(new Error('Bad thing.'), { code: 'ERR_BAD' }))).toBe('Bad thing');
  expect(failureReason(null)).toBe('null');
});
