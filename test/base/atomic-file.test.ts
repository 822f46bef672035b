import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  makeFolders,
  storageError,
  writeDirectoryAtomic,
  writeFileAtomic,
} from '../../src/base/atomic-file.js';
import { SetupError } from '../../src/base/errors.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-atomic-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

describe('writeFileAtomic', () => {
  test('writes text and bytes, replaces, and leaves no other file', async () => {
    const path = join(folder, 'record.json');
    await writeFileAtomic(path, 'first, longer than the second');
    await writeFileAtomic(path, new Uint8Array([1, 2, 3]));
    expect([...(await readFile(path))]).toEqual([1, 2, 3]);
    expect(await readdir(folder)).toEqual(['record.json']);
  });

  test('a missing folder is a typed error with the path and the bytes', async () => {
    const path = join(folder, 'none', 'record.json');
    await expect(writeFileAtomic(path, 'four')).rejects.toMatchObject({
      name: 'SetupError',
      code: 'no-such-folder',
      data: { path, neededBytes: '4' },
    });
  });

  test('a target that is a folder keeps its content and leaves no temporary file', async () => {
    const path = join(folder, 'taken');
    await mkdir(path);
    await writeFile(join(path, 'inside'), '');
    await expect(writeFileAtomic(path, 'text')).rejects.toThrow();
    expect(await readdir(folder)).toEqual(['taken']);
    expect(await readdir(path)).toEqual(['inside']);
  });

  test('a folder that is closed to writers is a typed error', async ({ skip }) => {
    if (process.getuid?.() === 0) skip('the superuser may write anywhere');
    await chmod(folder, 0o500);
    await expect(writeFileAtomic(join(folder, 'a'), 'text')).rejects.toMatchObject({ code: 'not-writable' });
    await chmod(folder, 0o700);
  });
});

describe('writeDirectoryAtomic', () => {
  const build = (content: string) => ({
    temporary: join(folder, 'building'),
    neededBytes: content.length,
    fill: (directory: string) => writeFile(join(directory, 'content'), content),
  });

  test('puts a filled directory in an absent or an empty place', async () => {
    const target = join(folder, 'made');
    expect(await writeDirectoryAtomic(target, build('one'))).toBe(true);
    expect(await readFile(join(target, 'content'), 'utf8')).toBe('one');
    const empty = join(folder, 'empty');
    await mkdir(empty);
    expect(await writeDirectoryAtomic(empty, build('two'))).toBe(true);
    expect((await readdir(folder)).sort()).toEqual(['empty', 'made']);
  });

  test('gives way to a directory that is there', async () => {
    const target = join(folder, 'made');
    await writeDirectoryAtomic(target, build('one'));
    expect(await writeDirectoryAtomic(target, build('two'))).toBe(false);
    expect(await readFile(join(target, 'content'), 'utf8')).toBe('one');
    expect(await readdir(folder)).toEqual(['made']);
  });

  test('leaves nothing when filling fails', async () => {
    const failing = {
      ...build(''),
      fill: async (directory: string) => {
        await writeFile(join(directory, 'half'), 'half');
        throw new RangeError('no more');
      },
    };
    await expect(writeDirectoryAtomic(join(folder, 'made'), failing)).rejects.toThrow(RangeError);
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('makeFolders', () => {
  test('makes what is missing, and takes what is there', async () => {
    const path = join(folder, 'a', 'b', 'c');
    await Promise.all([makeFolders(path, 'make', 0), makeFolders(path, 'make', 0)]);
    await makeFolders(path, 'make', 0);
    expect(await readdir(path)).toEqual([]);
  });

  test('a file in the way is a typed error', async () => {
    await writeFile(join(folder, 'file'), '');
    await expect(makeFolders(join(folder, 'file', 'b'), 'make', 0)).rejects.toMatchObject({
      code: 'not-a-folder',
    });
    await expect(makeFolders(join(folder, 'file'), 'make', 0)).rejects.toMatchObject({
      code: 'not-a-folder',
    });
  });
});

describe('storageError', () => {
  const system = (code: string) => Object.assign(new Error(code), { code, syscall: 'write' });

  test.each([
    ['ENOSPC', 'disk-full', 'the disk is full'],
    ['EDQUOT', 'disk-full', 'the quota is used up'],
    ['EFBIG', 'disk-full', 'the file size limit is reached'],
    ['EACCES', 'not-writable', 'permission is denied'],
    ['EPERM', 'not-writable', 'permission is denied'],
    ['EROFS', 'not-writable', 'the file system is read-only'],
    ['ENOENT', 'no-such-folder', 'its folder does not exist'],
    ['ENOTDIR', 'not-a-folder', 'a part of the path is no folder'],
  ])('%s becomes %s', (code, wanted, reason) => {
    const cause = system(code);
    const error = storageError(cause, 'write', '/a/b', 2048);
    expect(error).toBeInstanceOf(SetupError);
    expect(error).toMatchObject({
      code: wanted,
      cause,
      data: { path: '/a/b', neededBytes: '2048', system: code },
    });
    expect((error as SetupError).message.startsWith('Cannot write "/a/b": ')).toBe(true);
    expect((error as SetupError).message).toContain(reason);
  });

  test('other errors stay what they are', () => {
    const own = system('EIO');
    expect(storageError(own, 'write', '/a', 1)).toBe(own);
    const defect = Object.assign(new Error('no system error'), { code: 'ENOSPC' });
    expect(storageError(defect, 'write', '/a', 1)).toBe(defect);
  });
});
