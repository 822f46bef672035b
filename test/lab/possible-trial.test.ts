import { describe, expect, test } from 'vitest';
import type { RunPart } from '../../src/lab/archive-part.js';
import { checkPart } from '../../src/lab/audit-part.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import type { TrialRecord } from '../../src/lab/record-format.js';
import { archiveProtocol, packetsWin } from './support/archive-sample.js';
import { sampleEnd, sampleManifest } from './support/sample-run.js';

const zeros = '0'.repeat(64);

/** A part whose records are those of an honest run but for one change. */
function partOf(protocol: Protocol, change: (trial: TrialRecord, index: number) => TrialRecord): RunPart {
  const frozen = { ...protocol, frozen: { digest: zeros, at: '2026-01-01T00:00:00+00:00' } };
  const manifest = sampleManifest(protocol);
  const trials = manifest.slots.map((slot, index) => change(packetsWin(slot, index), index));
  return {
    prefix: '',
    protocol: { name: 'p.yaml', protocol: frozen, digest: zeros, document: null as never },
    superseded: [],
    protocolFileDigest: zeros,
    manifest,
    manifestDigest: zeros,
    records: [...trials, sampleEnd()],
    headDigest: zeros,
  };
}

const protocol = archiveProtocol();
const changed = (change: (trial: TrialRecord) => TrialRecord, of = protocol) =>
  partOf(of, (trial, index) => (index === 3 ? change(trial) : trial));
const first = (trial: TrialRecord, changes: Partial<TrialRecord['requests'][number]>): TrialRecord => ({
  ...trial,
  requests: trial.requests.map((request, index) => (index === 0 ? { ...request, ...changes } : request)),
});

describe('records that no run leaves', () => {
  test('an honest run is possible', () => {
    expect(() => checkPart(changed((trial) => trial))).not.toThrow();
  });

  test.each<[string, (trial: TrialRecord) => TrialRecord, string]>([
    [
      'fewer tokens than the protocol asks for',
      (trial) => first(trial, { newTokens: 2, logitsDigests: trial.requests[0]!.logitsDigests.slice(0, 2) }),
      'has 2 new tokens in request 1, the protocol 3',
    ],
    ['more of them', (trial) => first(trial, { newTokens: 4, logitsDigests: [] }), 'has 4 new tokens'],
    ['a shorter prompt', (trial) => first(trial, { promptTokens: 3 }), 'has 3 prompt tokens in request 1'],
    ['a request less', (trial) => ({ ...trial, requests: trial.requests.slice(0, 1) }), 'has 1 requests'],
    [
      'token ids that the protocol leaves out',
      (trial) => first(trial, { content: { tokenIds: [1, 2, 3] } }),
      'holds token ids in request 1',
    ],
    [
      'logits that the protocol leaves out',
      (trial) => first(trial, { logits: ['AAAA', 'AAAA', 'AAAA'] }),
      'holds logits in request 1, which the protocol leaves out',
    ],
    [
      'another policy',
      (trial) => ({ ...trial, arm: { ...trial.arm, policy: 'resident' } }),
      'says that its policy was resident, the protocol',
    ],
    [
      'another allowance',
      (trial) => ({ ...trial, arm: { ...trial.arm, budgetBytes: '5' } }),
      'says that its allowance was 5, the protocol null',
    ],
    [
      'a copy where nothing is copied',
      (trial) => ({ ...trial, borrowed: { archiveSha256: zeros, record: 1, slot: trial.slot } }),
      'is called a copy from an archive',
    ],
  ])('%s', (_, change, text) => {
    expect(() => checkPart(changed(change))).toThrow(text);
  });

  test('trials that share a process which they must not share', () => {
    const alone = archiveProtocol({
      isolation: 'process-per-trial',
      schedule: { ...protocol.schedule, warmUps: 0 },
    });
    const numbered = (trial: TrialRecord, index: number): TrialRecord => ({
      ...trial,
      fresh: true,
      process: index + 1,
    });
    expect(() => checkPart(partOf(alone, numbered))).not.toThrow();
    expect(() =>
      checkPart(partOf(alone, (trial, index) => numbered(trial, index === 4 ? 3 : index))),
    ).toThrow('record 1 shares its process with an earlier trial');
    expect(() =>
      checkPart(partOf(alone, (trial, index) => ({ ...numbered(trial, index), fresh: index !== 2 }))),
    ).toThrow('set nothing up');
  });

  test('files that are not those of the model that the protocol names', () => {
    const part = changed((trial) => trial);
    const [other] = part.manifest.subjects.packets!;
    const subjects = { ...part.manifest.subjects, packets: [{ ...other!, sha256: zeros }] };
    expect(() => checkPart({ ...part, manifest: { ...part.manifest, subjects } })).toThrow(
      'the files of arm "packets" have digest',
    );
    const { packets: _, ...none } = part.manifest.subjects;
    expect(() => checkPart({ ...part, manifest: { ...part.manifest, subjects: none } })).toThrow(
      'the files of arm "packets" have digest',
    );
  });

  test('a protocol that was frozen after the run began', () => {
    const part = changed((trial) => trial);
    const late = { ...part.protocol.protocol, frozen: { digest: zeros, at: '2026-02-01T00:00:00+00:00' } };
    expect(() => checkPart({ ...part, protocol: { ...part.protocol, protocol: late } })).toThrow(
      'was frozen at 2026-02-01T00:00:00+00:00, after the run began',
    );
  });
});
