import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SetupError } from '../../src/base/errors.js';
import { openOrPrepare } from '../../src/checkpoint/open-or-prepare.js';
import { openPrepared } from '../../src/checkpoint/prepared-open.js';
import { compileSources } from './compiled-sources.js';

const model = resolve('models/opt-books-draft');
let root: string;
let sources: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'waybill-crash-'));
  sources = await compileSources(await mkdtemp(join(root, 'sources-')));
});
afterAll(() => rm(root, { recursive: true, force: true }));

interface ChildEvent {
  event: 'held' | 'waiting' | 'done' | 'failed';
  pid?: number;
  preparedNow?: boolean;
  manifestDigest?: string;
  name?: string;
  code?: string;
  message?: string;
  data?: Record<string, unknown>;
}

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

interface Work {
  directory: string;
  holdAt?: number;
  release?: string;
  /** Words put before `node script argument`, for example a shell that sets a limit. */
  wrap?: (command: string[]) => string[];
}

/** Starts a preparing process; `next` gives its events one by one, and fails when it ends without one. */
async function start({ directory, holdAt, release, wrap }: Work) {
  const environment = { ...process.env, HF_HOME: await mkdtemp(join(root, 'home-')) };
  const task = { sources, model, directory, bufferBytes: 1 << 16, holdAt, release };
  const script = resolve('test/prepare/prepare-child.mjs');
  const plain = [process.execPath, script, JSON.stringify(task)];
  const [program, ...parameters] = wrap === undefined ? plain : wrap(plain);
  const child = spawn(program!, parameters, { env: environment, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let stderr = '';
  child.stderr.on('data', (text) => {
    stderr += text;
  });
  const closed = once(child, 'close');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<ChildEvent> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`The process ended without a word: ${stderr}`);
    return JSON.parse(value) as ChildEvent;
  };
  return { child, next, closed };
}

async function place() {
  const folder = await mkdtemp(join(root, 'place-'));
  return { folder, directory: join(folder, 'prepared'), release: join(folder, 'release') };
}

describe('kill -9', () => {
  test.each([0, 0.5, 1])(
    'with %s of the bytes written: the next run clears up and prepares',
    async (holdAt) => {
      const { folder, directory, release } = await place();
      const killed = await start({ directory, holdAt, release });
      expect(await killed.next()).toMatchObject({ event: 'held' });
      killed.child.kill('SIGKILL');
      await killed.closed;
      const left = await readdir(folder);
      expect(left).toHaveLength(2);
      expect(left).toContain('prepared.lock');
      expect(left.some((name) => name.endsWith('.partial'))).toBe(true);

      const { prepared, preparedNow } = await openOrPrepare(model, { directory });
      expect(preparedNow).toBe(true);
      await prepared.close();
      await (await openPrepared(directory, { verify: true })).close();
      expect(await readdir(folder)).toEqual(['prepared']);
    },
  );

  test('while another waits: the other takes over', async () => {
    const { folder, directory, release } = await place();
    const first = await start({ directory, holdAt: 0.5, release });
    expect(await first.next()).toMatchObject({ event: 'held' });
    const second = await start({ directory });
    expect(await second.next()).toEqual({ event: 'waiting', pid: first.child.pid });
    first.child.kill('SIGKILL');
    expect(await second.next()).toMatchObject({ event: 'done', preparedNow: true });
    await second.closed;
    expect(await readdir(folder)).toEqual(['prepared']);
  });

  test('a lock whose pid was given to another process does not block', async () => {
    const { folder, directory } = await place();
    const { hostname } = await import('node:os');
    const holder = { host: hostname(), pid: process.pid, started: 'another boot/1', token: 'x' };
    await writeFile(`${directory}.lock`, JSON.stringify(holder));
    // Only where the system tells start times can the reuse be seen; elsewhere the pid alone counts.
    if (process.platform === 'linux') {
      await (await openOrPrepare(model, { directory })).prepared.close();
      expect(await readdir(folder)).toEqual(['prepared']);
    }
  });
});

describe('two at once', () => {
  test('the second waits and reuses what the first made', async () => {
    const { folder, directory, release } = await place();
    const first = await start({ directory, holdAt: 0.5, release });
    expect(await first.next()).toMatchObject({ event: 'held' });
    const second = await start({ directory });
    expect(await second.next()).toEqual({ event: 'waiting', pid: first.child.pid });
    await writeFile(release, '');
    const made = await first.next();
    const found = await second.next();
    expect(made).toMatchObject({ event: 'done', preparedNow: true });
    expect(found).toEqual({ event: 'done', preparedNow: false, manifestDigest: made.manifestDigest });
    await Promise.all([first.closed, second.closed]);
    expect((await readdir(folder)).sort()).toEqual(['prepared', 'release']);
    await (await openPrepared(directory, { verify: true })).close();
  });

  test('four without a stop: one prepares, all end with the same directory', async () => {
    const { folder, directory } = await place();
    const running = await Promise.all([1, 2, 3, 4].map(() => start({ directory })));
    const ends = await Promise.all(
      running.map(async ({ next }) => {
        let event = await next();
        while (event.event === 'waiting') event = await next();
        return event;
      }),
    );
    expect(ends.map(({ event }) => event)).toEqual(['done', 'done', 'done', 'done']);
    expect(ends.filter(({ preparedNow }) => preparedNow)).toHaveLength(1);
    expect(new Set(ends.map(({ manifestDigest }) => manifestDigest)).size).toBe(1);
    await Promise.all(running.map(({ closed }) => closed));
    expect(await readdir(folder)).toEqual(['prepared']);
  });
});

describe('no room', () => {
  test('a file size limit met while writing is a typed error and leaves nothing', async ({ skip }) => {
    if (process.platform === 'win32') skip('no ulimit');
    const { folder, directory } = await place();
    // ulimit -f counts 1,024-byte blocks in bash: the limit falls inside weights.bin, above every other file.
    const wrap = (command: string[]) => ['bash', '-c', 'ulimit -f 1024; exec "$@"', 'bash', ...command];
    const limited = await start({ directory, wrap });
    const event = await limited.next();
    expect(event).toMatchObject({ event: 'failed', name: 'SetupError', code: 'disk-full' });
    expect(event.message).toContain(`${event.data?.neededBytes} bytes`);
    await limited.closed;
    expect(await readdir(folder)).toEqual([]);
  });

  const mounted = join(tmpdir(), `waybill-tmpfs-${process.pid}`);
  const canMount = process.platform === 'linux' && process.getuid?.() === 0 && tryMount(mounted);
  afterAll(async () => {
    if (!canMount) return;
    spawnSync('umount', [mounted]);
    await rm(mounted, { recursive: true, force: true });
  });

  test.skipIf(!canMount)(
    'a disk that is too small is refused before the first byte (needs a tmpfs)',
    async () => {
      const directory = join(mounted, 'prepared');
      await writeFile(join(mounted, 'filler'), Buffer.alloc(44 << 20));
      const error = await openOrPrepare(model, { directory }).then(
        () => null,
        (reason: unknown) => reason,
      );
      expect(error).toMatchObject({ name: 'SetupError', code: 'disk-full' });
      const { message, data } = error as SetupError;
      expect(message).toContain(`${data.neededBytes} bytes`);
      expect(Number(data.neededBytes)).toBeGreaterThan(4 << 20);
      expect(Number(data.freeBytes)).toBeLessThanOrEqual(4 << 20);
      expect(await readdir(mounted)).toEqual(['filler']);
      await rm(join(mounted, 'filler'));
    },
  );

  test.skipIf(!canMount)(
    'a disk that fills up meanwhile is a typed error and leaves nothing (needs a tmpfs)',
    async () => {
      const { release } = await place();
      const directory = join(mounted, 'prepared');
      const running = await start({ directory, holdAt: 0.3, release });
      expect(await running.next()).toMatchObject({ event: 'held' });
      const filler = join(mounted, 'filler');
      const { bavail, bsize } = await statfs(mounted);
      await writeFile(filler, Buffer.alloc(bavail * bsize)); // every free block
      await writeFile(release, '');
      expect(await running.next()).toMatchObject({ event: 'failed', name: 'SetupError', code: 'disk-full' });
      await running.closed;
      expect(await readdir(mounted)).toEqual(['filler']);
    },
  );

  test.skipIf(!canMount)('a read-only file system is a typed error (needs a tmpfs)', async () => {
    const before = await readdir(mounted);
    expect(spawnSync('mount', ['-o', 'remount,ro', mounted]).status).toBe(0);
    const running = openOrPrepare(model, { directory: join(mounted, 'other', 'prepared') });
    await expect(running).rejects.toMatchObject({ name: 'SetupError', code: 'not-writable' });
    expect(await readdir(mounted)).toEqual(before);
  });

  test('a folder that may not be written to is a typed error', async ({ skip }) => {
    if (process.getuid?.() === 0) skip('the superuser may write anywhere');
    const { folder } = await place();
    const closed = join(folder, 'closed');
    await mkdir(closed);
    await chmod(closed, 0o500);
    await expect(openOrPrepare(model, { directory: join(closed, 'prepared') })).rejects.toMatchObject({
      name: 'SetupError',
      code: 'not-writable',
    });
  });
});

/** 48 MiB: room for one prepared small model. */
function tryMount(folder: string): boolean {
  spawnSync('mkdir', ['-p', folder]);
  return spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=48m', 'tmpfs', folder]).status === 0;
}
