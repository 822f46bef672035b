import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readArchiveFile } from '../../src/lab/archive-file.js';
import { auditArchive } from '../../src/lab/audit.js';
import { checkFrozen } from '../../src/lab/freeze.js';
import type { GateResult } from '../../src/lab/gates.js';
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

test.each(names.filter((name) => !/\.v\d+\.yaml$/.test(name)))(
  'docs/protocols.md says what %s asks and does not claim',
  async (name) => {
    const { protocol } = parseProtocol(await readFile(join('protocols', name)), name);
    const text = await readFile('docs/protocols.md', 'utf8');
    const [, section = ''] = text.split(`\n### ${protocol.name}\n`);
    const [own] = section.split('\n### ');
    expect(own).toContain(`[${protocol.question.trim()}](../protocols/${name})`);
    for (const claim of protocol.nonClaims) expect(own).toContain(`\n- ${claim}\n`);
  },
);

const small = names
  .filter((name) => name.endsWith('-small.yaml'))
  .map((name) => name.slice(0, -'.yaml'.length));

/** Gates that are missed on every machine: results, kept as such. All others that need no clock must pass. */
const missed: Readonly<Record<string, readonly string[]>> = {
  'low-bit-rivals-small': ['4 bits choose at least half of the tokens of the exact model'],
  'row-retention-small': ['the hot set saves at least 60 % of the bytes of packets'],
};

/** What needs no clock and is the same on every machine: bits, and shares of bytes that moved. */
const sharesOf = (gates: readonly GateResult[]) =>
  gates.flatMap(({ name, family, figures }) =>
    family === 'acquisition' && figures.share !== undefined ? [[name, figures.share]] : [],
  );

describe('run on the embedded model', () => {
  test.each(small)('%s: what its receipt says, where no clock is needed', async (name) => {
    const { gates, status, violations } = await runProtocol({
      protocolPath: join('protocols', `${name}.yaml`),
      runPath: join(folder, name),
      leaseFolder: join(folder, 'leases'),
    });
    expect([status, violations]).toEqual(['completed', []]);
    const untimed = gates.filter(({ family }) => family !== 'runtime' && family !== 'useful-latency');
    expect(untimed.filter(({ verdict }) => verdict !== 'pass').map((gate) => gate.name)).toEqual(
      missed[name] ?? [],
    );
    // How long it takes depends on the machine; that it was measured does not
    expect(gates.filter(({ verdict }) => verdict === 'unmeasured')).toEqual([]);
    const file = `${name}.zip.br`;
    const { archive } = await auditArchive(await readArchiveFile(join('receipts', file)), { name: file });
    expect(sharesOf(gates)).toEqual(sharesOf(archive!.run.evaluation.gates));
  });
});
