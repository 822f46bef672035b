import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { SetupError } from '../../src/base/errors.js';
import { resolveModel } from '../../src/checkpoint/hub.js';
import { LoopbackHub } from './loopback-hub.js';

/** Bytes that the disk still takes; a write beyond them fails as the system call would. */
const disk = vi.hoisted(() => ({ freeBytes: Number.POSITIVE_INFINITY }));

vi.mock('node:fs/promises', async (importOriginal) => {
  const original = await importOriginal<typeof import('node:fs/promises')>();
  const open: typeof original.open = async (path, flags, mode) => {
    const handle = await original.open(path, flags, mode);
    if (!String(path).endsWith('.waybill-partial')) return handle;
    const write = handle.write.bind(handle) as FileHandle['write'];
    const limited = async (bytes: Uint8Array, offset: number, length: number, position: number) => {
      if (disk.freeBytes === 0)
        throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC', syscall: 'write' });
      // A nearly full disk takes a part of a write before it refuses the rest.
      const taken = Math.min(length, disk.freeBytes);
      disk.freeBytes -= taken;
      return await write(bytes, offset, taken, position);
    };
    return Object.assign(handle, { write: limited });
  };
  return { ...original, open };
});

let hub: LoopbackHub;
let home = '';

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), 'waybill-hub-'));
  hub = new LoopbackHub();
  await hub.start();
  hub.add('config.json', '{}');
  hub.add('model.safetensors', Buffer.alloc(200_000, 5), true);
});

afterEach(async () => {
  await hub.stop();
  rmSync(home, { recursive: true, force: true });
});

it('reports a disk that fills up, and goes on from there when it has room again', async () => {
  const environment = { HF_HOME: home, HF_ENDPOINT: hub.endpoint };
  disk.freeBytes = 70_000;
  const error: unknown = await resolveModel(hub.name, { environment, retryDelayMs: 1 }).catch(
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(SetupError);
  expect((error as SetupError).code).toBe('disk-full');
  const repository = join(home, 'hub', 'models--org--tiny-opt');
  expect(existsSync(join(repository, 'refs'))).toBe(false);
  expect(readdirSync(join(repository, 'blobs')).filter((name) => name.endsWith('.lock'))).toEqual([]);

  disk.freeBytes = Number.POSITIVE_INFINITY;
  hub.seen.length = 0;
  expect(await resolveModel(hub.name, { environment })).toMatchObject({ fromCache: false });
  expect(hub.fetchesOf('model.safetensors').map(({ range }) => range)).toEqual(['bytes=69998-']);
});
