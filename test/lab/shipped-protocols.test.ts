import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkFrozen } from '../../src/lab/freeze.js';
import { supersededProtocols } from '../../src/lab/protocol-chain.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import { runProtocol } from '../../src/lab/runner.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-shipped-'));
  process.env.HF_HOME = join(folder, 'hf');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const names = (await readdir('protocols')).filter((name) => name.endsWith('.yaml'));

test.each(names)('%s is frozen, and so is what it supersedes', async (name) => {
  const file = parseProtocol(await readFile(join('protocols', name)), name);
  expect(() => checkFrozen(file)).not.toThrow();
  // what was superseded has a version before its suffix, and is run no more
  expect(name.replace(/\.v\d+\.yaml$/, '.yaml')).toBe(`${file.protocol.name}.yaml`);
  expect(file.protocol.nonClaims.length).toBeGreaterThan(2);
  await supersededProtocols(file, 'protocols');
});

const run = (name: string) =>
  runProtocol({
    protocolPath: join('protocols', `${name}.yaml`),
    runPath: join(folder, name),
    leaseFolder: join(folder, 'leases'),
  });

describe('run on the embedded model', () => {
  test('exact-packets-small: same bits in a tenth of the bytes', async () => {
    const { gates, status, violations } = await run('exact-packets-small');
    expect([status, violations]).toEqual(['completed', []]);
    const decided = gates.filter(({ family }) => family !== 'runtime');
    expect(decided.map(({ name, verdict }) => [name, verdict])).toEqual(
      decided.map(({ name }) => [name, 'pass']),
    );
    // What a stream and packets read on given prompts is the same on every machine
    expect(gates.find(({ check }) => check === 'share-at-most')!.figures.share).toBe('0.100677');
    // How long it takes is not: only that it was measured
    const timed = gates.find(({ family }) => family === 'runtime')!;
    expect(timed.verdict).not.toBe('unmeasured');
    expect(timed.effect!.pairs).toBe(10);
  });

  test('bounded-capacity-small: each trial in a process of its own, inside the allowance', async () => {
    const { gates, verdict } = await run('bounded-capacity-small');
    expect(
      gates.map(({ name, verdict: given, reason }) => (given === 'pass' ? given : `${name}: ${reason}`)),
    ).toEqual(gates.map(() => 'pass'));
    expect(verdict).toBe('pass');
  });

  // Verdicts on time depend on the machine; that they were measured does not
  test.each([
    ['aa-small', 3],
    ['phase-switch-small', 4],
    ['resident-first-use-small', 4],
  ])('%s: everything but time passes, and time is measured', async (name, passing) => {
    const { gates, status, violations } = await run(name);
    expect([status, violations]).toEqual(['completed', []]);
    const untimed = gates.filter(({ family }) => family !== 'runtime' && family !== 'useful-latency');
    expect(untimed.map(({ verdict }) => verdict)).toEqual(Array(passing).fill('pass'));
    expect(gates.filter(({ verdict }) => verdict === 'unmeasured')).toEqual([]);
  });
});
