import { describe, expect, test } from 'vitest';
import { canonicalJson } from '../../src/base/canonical-json.js';
import { buildArchive } from '../../src/lab/archive.js';
import type { Members } from '../../src/lab/archive-container.js';
import { sumsOf } from '../../src/lab/archive-layout.js';
import { runFilesOf } from '../../src/lab/archive-part.js';
import { auditArchive } from '../../src/lab/audit.js';
import { freezeProtocol } from '../../src/lab/freeze.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import { orderProblem } from '../../src/lab/schedule.js';
import {
  archiveProtocol,
  packedBytes,
  withTemporaryFolder,
  writeSampleRun,
} from './support/archive-sample.js';
import { yamlBytes } from './support/sample-protocol.js';

const protocol = archiveProtocol({
  schedule: { seed: 7, blocks: 2, order: 'balanced', warmUps: 0 },
  gates: [{ name: 'same bits', family: 'faithfulness', check: 'bit-equal', arms: ['stream', 'packets'] }],
});

async function membersOf(): Promise<Map<string, Uint8Array>> {
  return withTemporaryFolder(async (folder) => {
    await writeSampleRun(folder, { protocol });
    const sources = { run: folder, noise: null, attempts: [], attachments: [], privateKey: null };
    return new Map((await buildArchive(sources)).members);
  });
}

/** The audit's code for an archive with other members, their list of digests made to fit. */
async function codeOf(changes: Readonly<Record<string, string | Uint8Array>>): Promise<string | undefined> {
  const members = await membersOf();
  for (const [name, bytes] of Object.entries(changes)) members.set(name, Buffer.from(bytes as string));
  members.set('SHA256SUMS', Buffer.from(sumsOf(members)));
  return (await auditArchive(await packedBytes(members), { name: 'hostile.zip' })).audit.broken?.code;
}

/** Written as a program would write it that asks for more than anybody can want. */
const frozen = (changes: Partial<Protocol>): string =>
  freezeProtocol(
    parseProtocol(yamlBytes({ ...protocol, ...changes }), 'p.yaml'),
    '2026-01-01T00:00:00+00:00',
  );

describe('an archive that asks for too much', () => {
  test.each([
    ['brackets', '['.repeat(200_000)],
    ['braces', '{a: '.repeat(50_000)],
    ['dashes', '- '.repeat(100_000)],
    ['questions', '? '.repeat(100_000)],
  ])('by nesting in its protocol (%s) is malformed', async (_, text) => {
    expect(await codeOf({ 'protocol.yaml': text })).toBe('malformed-record');
  });

  test.each([
    ['manifest.json', '['.repeat(500_000)],
    ['manifest.json', `${'{"a":'.repeat(300_000)}`],
    ['records.jsonl', `${'['.repeat(500_000)}\n`],
  ])('by nesting in %s is malformed', async (name, text) => {
    expect(await codeOf({ [name]: text })).toBe('malformed-record');
  });

  test('by a schedule that it does not hold is refused before the schedule is planned', async () => {
    const text = frozen({ schedule: { seed: 7, blocks: 100_000, order: 'balanced', warmUps: 1000 } });
    const digest = parseProtocol(Buffer.from(text), 'p.yaml').digest;
    const members = await membersOf();
    const manifest = JSON.parse(Buffer.from(members.get('manifest.json')!).toString()) as {
      protocol: { digest: string };
    };
    manifest.protocol.digest = digest;
    const changes = { 'protocol.yaml': text, 'manifest.json': `${canonicalJson(manifest)}\n` };
    expect(await codeOf(changes)).toBe('schedule-mismatch');
  });

  test('by millions of records is refused while they are counted', () => {
    const members: Members = new Map([
      ['protocol.yaml', new Uint8Array()],
      ['manifest.json', new Uint8Array()],
      ['records.jsonl', Buffer.alloc(1_000_001, '\n')],
    ]);
    expect(() => runFilesOf(members, '')).toThrow('more than 1000000 lines');
  });

  test('by ten thousand gates is refused', () => {
    const gates = Array.from({ length: 10_000 }, (_, index) => ({
      ...protocol.gates[0]!,
      name: `g${index}`,
    }));
    expect(() => parseProtocol(yamlBytes({ ...protocol, gates }), 'p.yaml')).toThrow('<=200');
  });

  test('by a long order is checked once over', () => {
    const order = Array.from({ length: 100_000 }, (_, block) =>
      block % 2 === 0 ? ['a', 'b'] : ['b', 'a'],
    ).flat();
    expect(orderProblem(['a', 'b'], 100_000, order)).toBeNull();
    expect(orderProblem(['a', 'b'], 100_000, [...order.slice(0, -2), 'a', 'b'])).toContain(
      'blocks 99999 to 100000',
    );
  });
});
