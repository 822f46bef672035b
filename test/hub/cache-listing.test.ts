import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { SetupError, UsageError, WaybillError } from '../../src/base/errors.js';
import { listCache, removeFromCache } from '../../src/checkpoint/cache-listing.js';

let home = '';
let environment: NodeJS.ProcessEnv = {};
const commit = 'a'.repeat(40);
const older = 'b'.repeat(40);
const digest = '0123456789'.padEnd(64, 'c');

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'waybill-cache-'));
  environment = { HF_HOME: home };
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function addModel(name: string, byteLength = 1000): string {
  const repository = join(home, 'hub', `models--${name.replace('/', '--')}`);
  for (const folder of ['blobs', 'refs', `snapshots/${commit}`, `snapshots/${older}`])
    mkdirSync(join(repository, folder), { recursive: true });
  writeFileSync(join(repository, 'blobs', 'x'), Buffer.alloc(byteLength));
  writeFileSync(join(repository, 'refs', 'main'), commit);
  for (const id of [commit, older])
    symlinkSync('../../blobs/x', join(repository, 'snapshots', id, 'model.safetensors'));
  return repository;
}

function addPrepared(name: string): string {
  const directory = join(home, 'waybill', name);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'manifest.json'), '{}');
  writeFileSync(join(directory, 'weights'), Buffer.alloc(500));
  return directory;
}

async function failure(name: string): Promise<WaybillError> {
  const error: unknown = await removeFromCache(name, environment).then(
    (value) => value,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WaybillError);
  return error as WaybillError;
}

it('lists nothing where there is nothing', async () => {
  expect(await listCache(environment)).toEqual({ entries: [], byteLength: 0 });
});

it('lists models with each blob counted once, and prepared models', async () => {
  const repository = addModel('org/some-model');
  const prepared = addPrepared(digest);
  mkdirSync(join(home, 'hub', 'datasets--org--data', 'snapshots'), { recursive: true });
  mkdirSync(join(home, 'waybill', 'digests'));
  mkdirSync(join(home, 'waybill', 'd'.repeat(64)));
  mkdirSync(join(repository, 'refs/refs/pr'), { recursive: true });
  writeFileSync(join(repository, 'refs/refs/pr/1'), commit);
  const time = new Date('2031-02-03T04:05:06Z');
  utimesSync(join(repository, 'blobs', 'x'), time, time);
  const { entries, byteLength } = await listCache(environment);
  expect(entries).toMatchObject([
    { kind: 'hub', name: 'org/some-model', path: repository, byteLength: 1080, modified: time },
    { kind: 'prepared', name: digest, path: prepared, byteLength: 502, revisions: [] },
  ]);
  expect(entries[0]!.revisions).toEqual([
    { commit, refs: ['main', 'refs/pr/1'] },
    { commit: older, refs: [] },
  ]);
  expect(byteLength).toBe(1582);
});

it('lists a model that another one beside it spoils', async () => {
  addModel('org/good');
  mkdirSync(join(home, 'hub', 'models--org--torn', 'snapshots'), { recursive: true });
  writeFileSync(join(home, 'hub', 'stray-file'), '');
  symlinkSync('/nowhere', join(home, 'hub', 'dangling'));
  const { entries } = await listCache(environment);
  expect(entries.map(({ name }) => name)).toEqual(['org/good', 'org/torn']);
  await removeFromCache('org/torn', environment);
  expect(existsSync(join(home, 'hub', 'models--org--torn'))).toBe(false);
});

it('removes one entry and nothing else', async () => {
  const one = addModel('org/one');
  const two = addModel('org/two');
  const prepared = addPrepared(digest);
  expect(await removeFromCache('org/one', environment)).toMatchObject({ name: 'org/one', byteLength: 1040 });
  expect([existsSync(one), existsSync(two), existsSync(prepared)]).toEqual([false, true, true]);
  await removeFromCache(digest.slice(0, 10), environment);
  expect([existsSync(two), existsSync(prepared)]).toEqual([true, false]);
  expect(readdirSync(join(home, 'waybill'))).toEqual([]);
  expect(readdirSync(join(home, 'hub'))).toEqual(['models--org--two']);
});

it('does not follow links out of the cache', async () => {
  const outside = join(home, 'outside');
  mkdirSync(join(outside, 'snapshots'), { recursive: true });
  writeFileSync(join(outside, 'keep'), 'x');
  // A link inside an entry goes with the entry, what it points to stays.
  const repository = addModel('org/one');
  symlinkSync(outside, join(repository, 'link'));
  await removeFromCache('org/one', environment);
  expect(readdirSync(outside)).toEqual(['keep', 'snapshots']);
  // An entry that is a link itself is left alone.
  symlinkSync(outside, join(home, 'hub', 'models--org--linked'));
  mkdirSync(join(home, 'waybill'));
  symlinkSync(addPrepared('e'.repeat(64)), join(home, 'waybill', digest));
  symlinkSync('/nowhere', join(home, 'hub', 'models--org--dangling'));
  for (const name of ['org/linked', 'org/dangling', digest]) {
    const error = await failure(name);
    expect(error).toBeInstanceOf(SetupError);
    expect(error.code).toBe('cache-entry-outside');
  }
  expect(existsSync(join(outside, 'keep'))).toBe(true);
});

it.each([
  '..',
  '.',
  '',
  '../outside',
  'org/absent',
  '/',
  'digests',
  'models--org--one',
  '01234567'.slice(0, 7),
])('refuses "%s"', async (name) => {
  addModel('org/one');
  addPrepared(digest);
  const error = await failure(name);
  expect(error).toBeInstanceOf(UsageError);
  expect(error.code).toBe('cache-entry-unknown');
});

it('refuses a beginning that two prepared models share', async () => {
  addPrepared(digest);
  addPrepared('0123456789'.padEnd(64, 'd'));
  expect((await failure('0123456789')).code).toBe('cache-entry-ambiguous');
});
