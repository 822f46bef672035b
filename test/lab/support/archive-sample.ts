import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { canonicalJson } from '../../../src/base/canonical-json.js';
import { archiveStream, type Members } from '../../../src/lab/archive-container.js';
import { freezeProtocol } from '../../../src/lab/freeze.js';
import { parseProtocol } from '../../../src/lab/protocol-file.js';
import type { Protocol } from '../../../src/lab/protocol-schema.js';
import type { Manifest, RunRecord, Slot, TrialRecord } from '../../../src/lab/record-format.js';
import { sampleProtocol, yamlBytes } from './sample-protocol.js';
import { chained, sampleEnd, sampleManifest, sampleTrial } from './sample-run.js';

/** A protocol whose item is what `sampleTrial` ran: two prompts of four ids. */
export function archiveProtocol(changes: Partial<Protocol> = {}): Protocol {
  const prompts = [{ promptIds: [2, 100, 524, 7] }, { promptIds: [2, 8, 9, 10] }];
  return sampleProtocol({
    workload: { kind: 'known', items: [{ prompts }], newTokens: 3, includeContent: false },
    ...changes,
  });
}

/** "packets" takes nine tenths of the time of "stream", in half of the bytes. */
export function packetsWin(slot: Slot, index: number): TrialRecord {
  const packets = slot.arm === 'packets';
  const trial = sampleTrial(slot, BigInt((packets ? 900_000 : 1_000_000) + 137 * ((index * 7) % 11)));
  const moved = { ...trial.bytes.moved, 'dense-weights': packets ? '270' : '600' };
  return { ...trial, bytes: { ...trial.bytes, moved } };
}

export interface SampleRun {
  readonly protocol?: Protocol;
  readonly variant?: Manifest['variant'];
  readonly startedAt?: string;
  readonly trial?: (slot: Slot, index: number) => TrialRecord;
  /** Trials that ran, of all; less than all leaves a killed run. */
  readonly trials?: number;
  readonly end?: RunRecord | null;
}

/** Writes the folder of a run as the runner leaves it. */
export async function writeSampleRun(folder: string, run: SampleRun = {}): Promise<void> {
  const protocol = run.protocol ?? archiveProtocol();
  const frozen = freezeProtocol(
    parseProtocol(yamlBytes(protocol), 'sample.yaml'),
    '2026-01-01T00:00:00.000+00:00',
  );
  const manifest: Manifest = {
    ...sampleManifest(protocol),
    variant: run.variant ?? 'measured',
    startedAt: run.startedAt ?? '2026-01-02T03:04:05.000+00:00',
  };
  const slots = manifest.slots.slice(0, run.trials ?? manifest.slots.length);
  const end = run.end === undefined ? sampleEnd() : run.end;
  const records = chained(manifest, [...slots.map(run.trial ?? packetsWin), ...(end === null ? [] : [end])]);
  await mkdir(join(folder, 'records'), { recursive: true });
  await writeFile(join(folder, 'protocol.yaml'), frozen);
  await writeFile(join(folder, 'manifest.json'), `${canonicalJson(manifest)}\n`);
  await writeFile(join(folder, 'salt'), `${'5a'.repeat(32)}\n`);
  for (const [index, record] of records.entries()) {
    const name = `${String(index + 1).padStart(6, '0')}.json`;
    await writeFile(join(folder, 'records', name), `${canonicalJson(record)}\n`);
  }
}

export async function packedBytes(members: Members): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of archiveStream(members)) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

export async function withTemporaryFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-lab-'));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
