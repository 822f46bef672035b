import type { FileHandle } from 'node:fs/promises';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { SetupError } from '../../src/base/errors.js';
import { evaluateRun } from '../../src/lab/evaluation.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { resumeRun, runProtocol } from '../../src/lab/runner.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';

/** Records that the disk still takes; of the next one it takes half, as a full disk does. */
const disk = vi.hoisted(() => ({ records: Number.POSITIVE_INFINITY }));

vi.mock('node:fs/promises', async (importOriginal) => {
  const original = await importOriginal<typeof import('node:fs/promises')>();
  const open: typeof original.open = async (path, flags, mode) => {
    const handle = await original.open(path, flags, mode);
    if (!/records\/\..*\.tmp$/.test(String(path)) || disk.records-- > 0) return handle;
    const writeFile = async (bytes: Uint8Array): Promise<void> => {
      await handle.write(bytes, 0, bytes.length >> 1);
      throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC', syscall: 'write' });
    };
    return Object.assign(handle, { writeFile: writeFile as FileHandle['writeFile'] });
  };
  return { ...original, open };
});

let bench: Bench;
beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());

test('a disk that fills up ends the run with a typed error; it resumes when there is room again', async () => {
  const protocolPath = await bench.freeze(liveProtocol(bench));
  const where = { runPath: join(bench.folder, 'run'), leaseFolder: bench.leaseFolder };
  disk.records = 3;
  const error: unknown = await runProtocol({ protocolPath, ...where }).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(SetupError);
  expect(error).toMatchObject({ code: 'disk-full', exitCode: 3 });
  expect(await readdir(bench.leaseFolder)).toEqual([]);
  expect((await readdir(join(where.runPath, 'records'))).sort()).toEqual([
    '000001.json',
    '000002.json',
    '000003.json',
  ]);
  const { protocolFile, manifest, records } = await readRunFolder(where.runPath);
  expect(evaluateRun(protocolFile.protocol, manifest, records)).toMatchObject({
    status: 'killed',
    verdict: 'inconclusive',
    violations: [],
  });

  disk.records = Number.POSITIVE_INFINITY;
  expect(await resumeRun(where)).toMatchObject({ verdict: 'pass', exitCode: 0, violations: [] });
});
