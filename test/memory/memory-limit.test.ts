import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runtimeAllowanceBytes } from '../../src/memory/runtime-allowance.js';

const run = promisify(execFile);
const waybill = ['bin/waybill.js'];
/** Below the 1.05 GB of the checkpoint, and below what regime C would hold. */
const budgetBytes = 500_000_000;
const promptIds = Array.from({ length: 24 }, (_, index) => 5 + ((index * 37) % 50_000)).join(',');

let folder = '';
let environment: NodeJS.ProcessEnv = {};
let cgroup: MemoryCgroup | null = null;

interface MemoryCgroup {
  readonly directory: string;
  readonly limitFile: string;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-limit-'));
  environment = { ...process.env, HF_HOME: join(folder, 'home') };
  const sizes = ['--layers', '16', '--hidden', '1536', '--heads', '24', '--active', '0.034'];
  await run('node', ['scripts/make-checkpoint.mjs', ...sizes, '--seed', '1', '--out', join(folder, 'model')]);
  // Packing has buffers of its own, so it is a process of its own.
  await run('node', [...waybill, 'prepare', '--model', join(folder, 'model'), '-q'], { env: environment });
  cgroup = await makeCgroup(budgetBytes + runtimeAllowanceBytes);
}, 300_000);

afterAll(async () => {
  if (cgroup !== null) await rmdir(cgroup.directory).catch(() => {});
  await rm(folder, { recursive: true, force: true });
});

describe('a model of 1 GB under a budget of 500 MB', () => {
  test.each([
    ['packets', 'auto'],
    ['stream', 'auto'],
    ['packets', 'wasm'],
  ])(
    '%s with %s kernels holds no more than budget and runtime, and finishes inside that limit',
    async (policy, kernels) => {
      const group = cgroup;
      if (group === null)
        console.warn('memory limit: not run inside a cgroup, none is writable here; peak RSS checked');
      const generate = [
        'generate',
        '--model',
        join(folder, 'model'),
        '--prompt-ids',
        promptIds,
        '--policy',
        policy,
      ];
      const flags = [
        '--kernels',
        kernels,
        '--budget',
        String(budgetBytes),
        '-n',
        '3',
        '--ignore-eos',
        '--json',
        '-q',
      ];
      const command = ['node', ...waybill, ...generate, ...flags].map((word) => `'${word}'`).join(' ');
      const enter = group === null ? '' : `echo $$ > '${join(group.directory, 'cgroup.procs')}' && `;
      const { stdout } = await run('sh', ['-c', `${enter}exec ${command}`], { env: environment });
      const result = JSON.parse(stdout) as {
        tokenIds: number[];
        peaks: { heldBytes: string; residentSetBytes: string };
      };
      expect(result.tokenIds).toHaveLength(3);
      expect(Number(result.peaks.heldBytes)).toBeLessThanOrEqual(budgetBytes);
      expect(Number(result.peaks.residentSetBytes)).toBeLessThanOrEqual(budgetBytes + runtimeAllowanceBytes);
    },
    120_000,
  );
});

/** A memory cgroup of its own (page cache counts in it), version 2 or 1; null where none is writable. */
async function makeCgroup(limitBytes: number): Promise<MemoryCgroup | null> {
  const name = `waybill-test-${process.pid}`;
  const candidates: MemoryCgroup[] = [
    { root: '/sys/fs/cgroup', limit: 'memory.max' },
    { root: '/sys/fs/cgroup/memory', limit: 'memory.limit_in_bytes' },
  ].map(({ root, limit }) => ({
    directory: join(root, name),
    limitFile: join(root, name, limit),
  }));
  for (const candidate of candidates) {
    try {
      await mkdir(candidate.directory);
      if (!existsSync(candidate.limitFile)) throw new Error('no memory controller');
      await writeFile(candidate.limitFile, String(limitBytes));
      expect(Number(await readFile(candidate.limitFile, 'utf8'))).toBeLessThanOrEqual(limitBytes);
      return candidate;
    } catch {
      await rmdir(candidate.directory).catch(() => {});
    }
  }
  return null;
}
