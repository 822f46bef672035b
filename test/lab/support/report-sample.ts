import { join } from 'node:path';
import { buildArchive } from '../../../src/lab/archive.js';
import { type AuditedArchive, auditArchive } from '../../../src/lab/audit.js';
import type { Protocol } from '../../../src/lab/protocol-schema.js';
import type { Slot, TrialRecord } from '../../../src/lab/record-format.js';
import {
  archiveProtocol,
  packedBytes,
  packetsWin,
  withTemporaryFolder,
  writeSampleRun,
} from './archive-sample.js';

/** Trials with samples and noise, so that every figure has something to show. */
function measuredTrial(slot: Slot, index: number): TrialRecord {
  const trial = packetsWin(slot, index);
  const samples = Array.from({ length: 12 }, (_, sample) => ({
    elapsedNs: String(sample * 80_000),
    residentSetBytes: String(90_000_000 + sample * 1_000_000 * (slot.arm === 'packets' ? 1 : 2)),
    heldBytes: String(slot.arm === 'packets' ? 20_000_000 : 40_000_000),
    deviceUsedBytes: null,
  }));
  const endedNs = String(BigInt(trial.times.endedNs) + BigInt((index * 7919) % 9973));
  // Arms are set up in their warm-up
  const fresh = slot.phase === 'warm-up';
  const times = { ...trial.times, endedNs, setupNs: fresh ? '2500000000' : null };
  const setupMoved = fresh ? { 'dense-weights': '3145728' } : null;
  return { ...trial, fresh, samples, times, bytes: { ...trial.bytes, setupMoved } };
}

/** An audited archive with a noise floor and a failed attempt that was kept. */
export async function reportSample(changes: Partial<Protocol> = {}): Promise<AuditedArchive> {
  const protocol = archiveProtocol(changes);
  return withTemporaryFolder(async (folder) => {
    const at = (name: string): string => join(folder, name);
    await writeSampleRun(at('run'), { protocol, trial: measuredTrial });
    const same = (slot: Slot, index: number) => ({
      ...measuredTrial({ ...slot, arm: 'stream' }, index + 3),
      slot,
    });
    await writeSampleRun(at('aa'), { protocol, variant: 'aa', trial: same });
    const earlier = { protocol, trials: 5, end: null, startedAt: '2026-01-01T05:00:00.000+00:00' };
    await writeSampleRun(at('failed'), earlier);
    const sources = {
      run: at('run'),
      noise: at('aa'),
      attempts: [at('failed')],
      attachments: [],
      privateKey: null,
    };
    const { members } = await buildArchive(sources);
    return auditArchive(await packedBytes(members), { name: 'sample.zip' });
  });
}
