import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { processorResources, takeLease } from '../../src/lab/lease.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-lease-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

test('a resource has one holder, who gives it back', async () => {
  const lease = await takeLease(['cpu-1', 'cpu-0'], folder);
  expect(lease.resources).toEqual(['cpu-0', 'cpu-1']);
  await expect(takeLease(['cpu-1'], folder)).rejects.toMatchObject({ code: 'lease-held', exitCode: 3 });
  const other = await takeLease(['cpu-2'], folder);
  expect(await lease.release()).toBe(0);
  expect(await lease.release()).toBe(0);
  await (await takeLease(['cpu-1'], folder)).release();
  await other.release();
  expect(await readdir(folder)).toEqual([]);
});

test('all resources are taken or none', async () => {
  const held = await takeLease(['cpu-3'], folder);
  await expect(takeLease(['cpu-1', 'cpu-2', 'cpu-3'], folder)).rejects.toMatchObject({ code: 'lease-held' });
  expect(await readdir(folder)).toEqual(['cpu-3.lock']);
  await held.release();
});

test('of many who try at once, one gets it', async () => {
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => takeLease(['cpu-0'], folder)));
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
});

test('a lock whose process has ended, or that is damaged, is taken over', async () => {
  const { pid } = spawnSync(process.execPath, ['-e', '']);
  const path = join(folder, 'cpu-0.lock');
  await writeFile(path, JSON.stringify({ host: hostname(), pid, started: null, token: 'old' }));
  await (await takeLease(['cpu-0'], folder)).release();
  await writeFile(path, 'not a lock');
  const lease = await takeLease(['cpu-0'], folder);
  expect(JSON.parse(await readFile(path, 'utf8')).pid).toBe(process.pid);
  await lease.release();
});

test('a lock of another host cannot be asked, and holds', async () => {
  await writeFile(
    join(folder, 'cpu-0.lock'),
    JSON.stringify({ host: 'elsewhere.example', pid: 1, started: null, token: 'x' }),
  );
  await expect(takeLease(['cpu-0'], folder)).rejects.toMatchObject({ code: 'lease-held' });
});

test('the processors of this process are resources', () => {
  expect(processorResources().length).toBeGreaterThan(0);
  for (const resource of processorResources()) expect(resource).toMatch(/^cpu-\d+$/);
});
