import { cp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildArchive } from '../../src/lab/archive.js';
import { auditArchive } from '../../src/lab/audit.js';
import { evaluateRun } from '../../src/lab/evaluation.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { resumeRun, runProtocol } from '../../src/lab/runner.js';
import { packedBytes } from './support/archive-sample.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sessionArm } from './support/sample-protocol.js';

let bench: Bench;
let whole: string;
let names: string[];

beforeAll(async () => {
  bench = await openBench();
  // A reference, two warm-ups, two blocks of two: seven trials, and the end
  const reference = { arm: sessionArm('plain', { policy: 'resident' }), when: 'first' as const };
  const protocolPath = await bench.freeze(liveProtocol(bench, { reference }));
  whole = join(bench.folder, 'whole');
  await runProtocol({ protocolPath, runPath: whole, leaseFolder: bench.leaseFolder });
  names = (await readdir(join(whole, 'records'))).sort();
});
afterAll(() => bench.close());

// What is on the disk after a kill is a whole number of records and at most one draft: each is renamed into place
test.each([0, 1, 2, 3, 4, 5, 6, 7])(
  'killed after %i records, with half of the next one written, a run goes on to its end',
  async (kept) => {
    expect(names).toHaveLength(8);
    const runPath = join(bench.folder, `killed-${kept}`);
    await cp(whole, runPath, { recursive: true });
    for (const name of names.slice(kept)) await rm(join(runPath, 'records', name));
    await writeFile(
      join(runPath, 'records', `.${names[kept]}.0123456789ab.tmp`),
      '{"format":"waybill-lab-ru',
    );
    const before = await readRunFolder(runPath);
    const killed = evaluateRun(before.protocolFile.protocol, before.manifest, before.records);
    expect(killed).toMatchObject({ status: 'killed', verdict: 'inconclusive', exitCode: 5, violations: [] });
    const { members } = await buildArchive({
      run: runPath,
      noise: null,
      attempts: [],
      attachments: [],
      privateKey: null,
    });
    const { audit } = await auditArchive(await packedBytes(members), { name: 'killed.zip' });
    expect(audit).toMatchObject({ holds: true, verdict: 'inconclusive', exitCode: 5 });
    const resumed = await resumeRun({ runPath, leaseFolder: bench.leaseFolder });
    expect(resumed).toMatchObject({ status: 'completed', verdict: 'pass', violations: [] });
    const after = await readRunFolder(runPath);
    expect(after.records.slice(0, kept)).toEqual(before.records);
    expect((await readdir(join(runPath, 'records'))).filter((name) => !name.endsWith('.json'))).toEqual([]);
  },
);
