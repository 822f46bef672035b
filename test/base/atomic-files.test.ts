import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { writeFilesAtomic } from '../../src/base/atomic-files.js';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'waybill-files-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string): string => join(folder, name);

test('writes all files, with their modes, over earlier ones', async () => {
  writeFileSync(at('a'), 'old');
  await writeFilesAtomic([
    { path: at('a'), text: 'new' },
    { path: at('b'), text: 'secret', mode: 0o600 },
  ]);
  expect(readFileSync(at('a'), 'utf8') + readFileSync(at('b'), 'utf8')).toBe('newsecret');
  expect(statSync(at('b')).mode & 0o777).toBe(0o600);
  expect(readdirSync(folder)).toEqual(['a', 'b']);
});

test('writes none where one cannot be written', async () => {
  writeFileSync(at('a'), 'old');
  const files = [
    { path: at('a'), text: 'new' },
    { path: at('absent/b'), text: 'x' },
  ];
  await expect(writeFilesAtomic(files)).rejects.toMatchObject({ code: 'no-such-folder' });
  expect(readFileSync(at('a'), 'utf8')).toBe('old');
  expect(readdirSync(folder)).toEqual(['a']);
});

test('writes none where one exists that is not to be replaced', async () => {
  writeFileSync(at('b'), 'old');
  const files = [
    { path: at('a'), text: 'new' },
    { path: at('b'), text: 'new' },
  ];
  await expect(writeFilesAtomic(files, { replace: false })).rejects.toMatchObject({
    code: 'file-exists',
    message: `Cannot write "${at('b')}": it exists, want a new name`,
  });
  expect(readFileSync(at('b'), 'utf8')).toBe('old');
  expect(readdirSync(folder)).toEqual(['b']);
});
