import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { evaluateRun } from '../../src/lab/evaluation.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { resumeRun } from '../../src/lab/runner.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';

let bench: Bench;
beforeAll(async () => {
  bench = await openBench();
});
afterAll(() => bench.close());

/** Starts a run in another process and kills it without warning a while after it has begun a trial. */
async function killedAt(trial: number, afterMs: number): Promise<string> {
  const protocolPath = await bench.freeze(liveProtocol(bench));
  const runPath = join(bench.folder, `killed-${trial}-${afterMs}`);
  const child = spawn(
    process.execPath,
    ['test/lab/support/run-child.mjs', protocolPath, runPath, bench.leaseFolder],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const exit = once(child, 'exit');
  for await (const line of createInterface({ input: child.stdout })) {
    if (line !== `trial ${trial}`) continue;
    await new Promise((resolve) => setTimeout(resolve, afterMs));
    child.kill('SIGKILL');
  }
  await exit;
  return runPath;
}

// Two warm-ups, then two blocks of two: in a warm-up, at the begin of a block, inside the last one
test.each([
  [1, 0],
  [2, 3],
  [5, 1],
])(
  'killed in trial %d after %d ms, a run is inconclusive, and whole once resumed',
  async (trial, afterMs) => {
    const runPath = await killedAt(trial, afterMs);
    const { protocolFile, manifest, records } = await readRunFolder(runPath);
    const killed = evaluateRun(protocolFile.protocol, manifest, records);
    if (killed.status === 'killed') {
      expect(killed).toMatchObject({ verdict: 'inconclusive', exitCode: 5, violations: [] });
      expect(await readdir(bench.leaseFolder)).not.toEqual([]); // the dead process still has its locks
      const resumed = await resumeRun({ runPath, leaseFolder: bench.leaseFolder });
      expect(resumed).toMatchObject({ verdict: 'pass', exitCode: 0, violations: [] });
      expect(resumed.deviations).toHaveLength(1);
      const after = await readRunFolder(runPath);
      expect(after.records.slice(0, records.length)).toEqual(records);
    } else {
      // It was over before the signal came
      expect(killed).toMatchObject({ status: 'completed', exitCode: 0 });
    }
    expect(await readdir(bench.leaseFolder)).toEqual([]);
    const names = await readdir(join(runPath, 'records'));
    expect(names.filter((name) => name.endsWith('.tmp'))).toEqual([]);
  },
);
