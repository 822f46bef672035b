import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InputError, InterruptedError, SetupError, UsageError, WaybillError } from '../../src/base/errors.js';
import { type HubProgress, type ResolveModelOptions, resolveModel } from '../../src/checkpoint/hub.js';
import { openTokenizer } from '../../src/checkpoint/tokenizer.js';
import { LoopbackHub, sha256 } from './loopback-hub.js';

const opt = join(import.meta.dirname, '../tokenizer/fixtures/opt-vocab-merges');
const weights = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 31 + (i >> 8)) & 255));

let hub: LoopbackHub;
let home = '';
let environment: NodeJS.ProcessEnv = {};

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), 'waybill-hub-'));
  hub = new LoopbackHub();
  await hub.start();
  environment = { HF_HOME: home, HF_ENDPOINT: `${hub.endpoint}/` };
  for (const name of [
    'config.json',
    'tokenizer_config.json',
    'special_tokens_map.json',
    'vocab.json',
    'merges.txt',
  ]) {
    hub.add(name, readFileSync(join(opt, name)));
  }
  hub.add('model.safetensors', weights, true);
  hub.add('pytorch_model.bin', 'not wanted', true);
  hub.add('flax_model.msgpack', 'not wanted', true);
  hub.add('README.md', 'not wanted');
});

afterEach(async () => {
  await hub.stop();
  rmSync(home, { recursive: true, force: true });
});

const resolve = (options: ResolveModelOptions = {}, model = hub.name) =>
  resolveModel(model, { environment, retryDelayMs: 1, ...options });

async function failure(options: ResolveModelOptions = {}, model = hub.name): Promise<WaybillError> {
  const error: unknown = await resolve(options, model).then(
    (found) => found,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WaybillError);
  expect((error as WaybillError).message).not.toMatch(/\.$/);
  return error as WaybillError;
}

const repository = () => join(home, 'hub', 'models--org--tiny-opt');
const blobs = () => (existsSync(join(repository(), 'blobs')) ? readdirSync(join(repository(), 'blobs')) : []);

describe('fetching', () => {
  it('fetches what is needed, into the layout of the Hugging Face cache', async () => {
    const found = await resolve();
    const directory = join(repository(), 'snapshots', hub.commit);
    expect(found).toEqual({
      kind: 'hub',
      directory,
      name: hub.name,
      revision: 'main',
      commit: hub.commit,
      fromCache: false,
    });
    expect(readdirSync(directory).sort()).toEqual([
      'config.json',
      'merges.txt',
      'model.safetensors',
      'special_tokens_map.json',
      'tokenizer_config.json',
      'vocab.json',
    ]);
    expect(readlinkSync(join(directory, 'model.safetensors'))).toBe(
      join('..', '..', 'blobs', sha256(weights)),
    );
    expect(readFileSync(join(directory, 'model.safetensors')).equals(weights)).toBe(true);
    expect(readFileSync(join(repository(), 'refs', 'main'), 'utf8')).toBe(hub.commit);
    expect(blobs()).toHaveLength(6);
    expect((await openTokenizer(directory)).encode('Hello world')[0]).toBe(2);
  });

  it('uses a whole snapshot without any request', async () => {
    await resolve();
    hub.seen.length = 0;
    expect(await resolve()).toMatchObject({ fromCache: true, commit: hub.commit });
    expect(await resolve({ revision: hub.commit })).toMatchObject({ fromCache: true, commit: hub.commit });
    expect(hub.seen).toEqual([]);
    await hub.stop();
    expect(await resolve({ offline: true })).toMatchObject({ fromCache: true });
  });

  it('asks nothing of the network for a folder', async () => {
    expect(await resolve({}, opt)).toEqual({ kind: 'folder', directory: opt });
    expect(hub.seen).toEqual([]);
  });

  it('reports progress that ends at the total', async () => {
    const seen: HubProgress[] = [];
    await resolve({ onProgress: (progress) => seen.push(progress) });
    const last = seen.at(-1)!;
    expect(last).toMatchObject({ file: 'model.safetensors', doneBytes: last.totalBytes });
    expect(seen.every(({ doneBytes, totalBytes }) => doneBytes <= totalBytes)).toBe(true);
    expect(seen.map((progress) => progress.doneBytes)).toEqual(
      seen.map((progress) => progress.doneBytes).sort((a, b) => a - b),
    );
  });

  it('takes revisions from the id or the option, with slashes', async () => {
    const other = 'd00d'.padEnd(40, '2');
    hub.revisions.set('refs/pr/1', other).set(other, other);
    const found = await resolve({}, `${hub.name}@refs/pr/1`);
    expect(found).toMatchObject({ revision: 'refs/pr/1', commit: other });
    expect(await resolve({ revision: 'refs/pr/1' })).toMatchObject({ commit: other, fromCache: true });
    expect(readFileSync(join(repository(), 'refs/refs/pr/1'), 'utf8')).toBe(other);
    // The blobs are shared between revisions.
    hub.seen.length = 0;
    await resolve();
    expect(hub.fetchesOf('model.safetensors')).toEqual([]);
  });

  it('fetches the shards that the index names and no others', async () => {
    hub.files.delete('model.safetensors');
    const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
    hub.add('model.safetensors.index.json', JSON.stringify({ weight_map: { a: shards[0], b: shards[1] } }));
    for (const shard of shards) hub.add(shard, `bytes of ${shard}`, true);
    hub.add('model-00003-of-00003.safetensors', 'of another set', true);
    const { directory } = await resolve();
    expect(readdirSync(directory).filter((name) => name.includes('model'))).toEqual(
      [...shards, 'model.safetensors.index.json'].sort(),
    );
    expect(await resolve()).toMatchObject({ fromCache: true });
  });

  it('takes torch files where there is no safetensors', async () => {
    hub.files.delete('model.safetensors');
    const { directory } = await resolve();
    expect(readFileSync(join(directory, 'pytorch_model.bin'), 'utf8')).toBe('not wanted');
  });

  it('sends the token to the hub and not to where it redirects', async () => {
    hub.token = 'any-form-of-token';
    environment.HF_TOKEN = hub.token;
    await resolve();
    expect(
      hub.seen
        .filter(({ host }) => host === 'hub')
        .every(({ authorization }) => authorization === `Bearer ${hub.token}`),
    ).toBe(true);
    expect(hub.fetchesOf('model.safetensors').map(({ authorization }) => authorization)).toEqual([null]);
  });

  it('honours HF_HUB_CACHE', async () => {
    environment.HF_HUB_CACHE = join(home, 'elsewhere');
    expect((await resolve()).directory).toBe(
      join(home, 'elsewhere/models--org--tiny-opt/snapshots', hub.commit),
    );
  });

  it('serves two calls at once', async () => {
    const [one, two] = await Promise.all([resolve(), resolve()]);
    expect(one.directory).toBe(two.directory);
    expect(hub.fetchesOf('model.safetensors')).toHaveLength(1);
    expect(blobs().filter((name) => /partial|lock|tmp/.test(name))).toEqual([]);
  });
});

describe('broken downloads', () => {
  it('resumes at once where the connection breaks in the middle', async () => {
    hub.faults.set('model.safetensors', { cutAfter: { bytes: 100_000, times: 1 } });
    const { directory } = await resolve();
    const ranges = hub.fetchesOf('model.safetensors').map(({ range }) => range);
    expect(ranges[0]).toBeNull();
    expect(ranges[1]).toMatch(/^bytes=[1-9][0-9]*-$/);
    expect(readFileSync(join(directory, 'model.safetensors')).equals(weights)).toBe(true);
  });

  it('resumes in a later call what an earlier one could not finish', async () => {
    hub.faults.set('model.safetensors', { cutAfter: { bytes: 0, times: 1e9 } });
    const partial = join(repository(), 'blobs', `${sha256(weights)}.waybill-partial`);
    expect((await failure()).code).toBe('hub-unreachable');
    expect(existsSync(join(repository(), 'refs/main'))).toBe(false);
    expect(existsSync(join(repository(), 'blobs', sha256(weights)))).toBe(false);
    writeFileSync(partial, weights.subarray(0, 123_456));
    hub.faults.clear();
    hub.seen.length = 0;
    const { directory } = await resolve();
    expect(hub.fetchesOf('model.safetensors').map(({ range }) => range)).toEqual(['bytes=123456-']);
    expect(hub.fetchesOf('vocab.json')).toEqual([]);
    expect(readFileSync(join(directory, 'model.safetensors')).equals(weights)).toBe(true);
    expect(existsSync(partial)).toBe(false);
  });

  it('begins again where the partial file holds other bytes', async () => {
    mkdirSync(join(repository(), 'blobs'), { recursive: true });
    writeFileSync(join(repository(), 'blobs', `${sha256(weights)}.waybill-partial`), Buffer.alloc(1000, 7));
    const { directory } = await resolve();
    expect(hub.fetchesOf('model.safetensors').map(({ range }) => range)).toEqual(['bytes=1000-', null]);
    expect(readFileSync(join(directory, 'model.safetensors')).equals(weights)).toBe(true);
  });

  it('begins again where the partial file is longer than the file', async () => {
    mkdirSync(join(repository(), 'blobs'), { recursive: true });
    writeFileSync(
      join(repository(), 'blobs', `${sha256(weights)}.waybill-partial`),
      Buffer.alloc(weights.length + 1),
    );
    const { directory } = await resolve();
    expect(readFileSync(join(directory, 'model.safetensors')).equals(weights)).toBe(true);
  });

  it('begins again where the server cannot resume', async () => {
    hub.faults.set('model.safetensors', { cutAfter: { bytes: 100_000, times: 1 }, ignoreRange: true });
    const { directory } = await resolve();
    expect(readFileSync(join(directory, 'model.safetensors')).equals(weights)).toBe(true);
  });

  it.each([['model.safetensors'], ['vocab.json']])(
    'never takes corrupt bytes of "%s" for the file',
    async (path) => {
      hub.faults.set(path, { corrupt: true });
      const error = await failure();
      expect(error.code).toBe('hub-download-corrupt');
      expect(error.message).toContain(`"${path}"`);
      expect(existsSync(join(repository(), 'refs/main'))).toBe(false);
      expect(blobs().some((name) => name.includes('partial'))).toBe(false);
      hub.faults.clear();
      expect(await resolve()).toMatchObject({ fromCache: false });
    },
  );

  it.each([1, 299_999])('never takes a file that is %d bytes short', async (shorten) => {
    hub.faults.set('model.safetensors', { shorten });
    const error = await failure();
    expect(['hub-server-error', 'hub-download-truncated']).toContain(error.code);
    expect(existsSync(join(repository(), 'blobs', sha256(weights)))).toBe(false);
  });

  it('refuses more bytes than the hub states', async () => {
    hub.faults.set('model.safetensors', { statedSize: weights.length - 1 });
    expect((await failure()).code).toBe('hub-download-corrupt');
  });

  it('repeats a request that the server was too busy for', async () => {
    hub.faults.set('model.safetensors', { statusOnce: 503 });
    expect(await resolve()).toMatchObject({ fromCache: false });
  });

  it('replaces a blob that lost bytes when it fetches another revision', async () => {
    await resolve();
    truncateSync(join(repository(), 'blobs', sha256(weights)), 10);
    rmSync(join(repository(), 'refs'), { recursive: true });
    await resolve();
    expect(readFileSync(join(repository(), 'blobs', sha256(weights))).equals(weights)).toBe(true);
  });

  it('refuses before the first byte what the disk cannot hold', async () => {
    hub.faults.set('model.safetensors', { statedSize: 2 ** 52 });
    const error = await failure();
    expect(error).toBeInstanceOf(SetupError);
    expect(error.code).toBe('disk-full');
    expect(error.message).toContain(String(2 ** 52));
    expect(hub.fetchesOf('model.safetensors')).toEqual([]);
  });

  it('stops when cancelled and resumes later', async () => {
    const cancel = new AbortController();
    const onProgress = ({ file, doneBytes }: HubProgress): void => {
      if (file === 'model.safetensors' && doneBytes > 0) cancel.abort();
    };
    hub.faults.set('model.safetensors', { cutAfter: { bytes: 50_000, times: 1 } });
    expect(await failure({ signal: cancel.signal, onProgress })).toBeInstanceOf(InterruptedError);
    expect(await resolve()).toMatchObject({ fromCache: false });
  });
});

describe('refusals', () => {
  it('offline with nothing cached, or with a part', async () => {
    expect((await failure({ offline: true })).code).toBe('hub-offline');
    environment.HF_HUB_OFFLINE = '1';
    expect((await failure()).message).toContain('holds no revision "main"');
    expect(hub.seen).toEqual([]);
    delete environment.HF_HUB_OFFLINE;
    await resolve();
    rmSync(join(repository(), 'blobs', sha256(weights)));
    expect((await failure({ offline: true })).message).toContain('in part');
    expect(await resolve()).toMatchObject({ fromCache: false });
  });

  it('unknown model', async () => {
    const error = await failure({}, 'org/no-such');
    expect(error.code).toBe('hub-not-found');
    expect(error.message).toContain('HF_TOKEN');
  });

  it('unknown revision', async () => {
    const error = await failure({ revision: 'v9' });
    expect(error.code).toBe('hub-revision-unknown');
    expect(error.message).toContain('"v9"');
  });

  it('gated model', async () => {
    hub.gated = true;
    const error = await failure();
    expect(error.code).toBe('hub-gated');
    expect(error.message).toContain(`${hub.endpoint}/${hub.name}`);
  });

  it('no token, and a token without access', async () => {
    hub.token = 'hf_right';
    const without = await failure();
    expect(without.code).toBe('hub-unauthorised');
    expect(without.message).toContain('set HF_TOKEN');
    environment.HF_TOKEN = 'hf_wrong';
    const wrong = await failure();
    expect(wrong.message).toContain('the token in HF_TOKEN has no access');
    expect(wrong.message + JSON.stringify(wrong.data)).not.toContain('hf_wrong');
  });

  it('no network, unless what is cached will do', async () => {
    for (const name of ['vocab.json', 'merges.txt']) hub.files.delete(name);
    await resolve();
    hub.seen.length = 0;
    // Weights without tokenizer: perhaps another program fetched them, so the hub is asked.
    expect(await resolve()).toMatchObject({ fromCache: false });
    expect(hub.seen.length).toBeGreaterThan(0);
    await hub.stop();
    expect(await resolve()).toMatchObject({ fromCache: true });
    rmSync(repository(), { recursive: true });
    const error = await failure();
    expect(error.code).toBe('hub-unreachable');
    expect(error.message).toContain('ECONNREFUSED');
  });

  it('a repository without config or without weights that are read', async () => {
    for (const name of ['model.safetensors', 'pytorch_model.bin']) hub.files.delete(name);
    const error = await failure();
    expect(error).toBeInstanceOf(InputError);
    expect(error.message).toContain('"flax_model.msgpack"');
    hub.files.delete('config.json');
    expect((await failure()).code).toBe('hub-config-missing');
  });

  it.each([
    ['an index that leaves the folder', '../../../etc/passwd', 'index-outside-folder'],
    ['an index that names an absent shard', 'model-00009-of-00009.safetensors', 'hub-shard-missing'],
  ])('%s', async (_what, shard, code) => {
    hub.add('model.safetensors.index.json', JSON.stringify({ weight_map: { a: shard } }));
    expect((await failure()).code).toBe(code);
  });

  it.each(['./absent', '/absent/folder', 'a/b/c', 'a..b', '-x', '', 'org/', 'org/name.git', 'a--b', '~'])(
    'no id: "%s"',
    async (model) => {
      expect((await failure({}, model)).code).toBe('model-missing');
      expect(hub.seen).toEqual([]);
    },
  );

  it.each(['../x', 'a/../b', '-x', 'a b', '', 'a//b', '/a', '.hidden'])('revision "%s"', async (revision) => {
    const error = await failure({ revision });
    expect(error).toBeInstanceOf(UsageError);
    expect(error.code).toBe('revision-invalid');
  });

  it('contradicting revisions, a revision of a folder, a file for a folder, a bad endpoint', async () => {
    expect((await failure({ revision: 'a' }, `${hub.name}@b`)).code).toBe('revision-twice');
    expect((await failure({ revision: 'a' }, opt)).code).toBe('revision-of-folder');
    expect((await failure({}, join(opt, 'vocab.json'))).code).toBe('model-not-a-folder');
    environment.HF_ENDPOINT = 'ftp://x';
    expect((await failure()).code).toBe('hub-endpoint-invalid');
  });

  it('a cache folder that is a file', async () => {
    writeFileSync(join(home, 'hub'), '');
    const error = await failure();
    expect(error.code).toMatch(/not-a-folder|no-such-folder|not-writable/);
    expect(lstatSync(join(home, 'hub')).isFile()).toBe(true);
  });
});
