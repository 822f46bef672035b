import { canonicalJson } from '../../../src/base/canonical-json.js';
import { sha256Hex } from '../../../src/base/digest.js';
import { plannedSlots } from '../../../src/lab/planned-slots.js';
import { protocolDigest } from '../../../src/lab/protocol-file.js';
import { allArms, type Protocol } from '../../../src/lab/protocol-schema.js';
import {
  type EndedRecord,
  type Manifest,
  manifestSchema,
  type RunRecord,
  recordSchema,
  runFormat,
  type Slot,
  type TrialRecord,
} from '../../../src/lab/record-format.js';

import { sampleFile } from './sample-protocol.js';

const zeros = '0'.repeat(64);
const at = '2026-01-02T03:04:05.000+00:00';
const environment = {
  platform: 'linux',
  architecture: 'x64',
  node: 'v20.20.0',
  processor: 'a processor',
  processors: 2,
  memoryBytes: '1',
  lease: ['cpu-0'],
};

export function sampleManifest(protocol: Protocol, items = 1): Manifest {
  return manifestSchema.parse({
    format: runFormat,
    kind: 'manifest',
    variant: 'measured',
    protocol: { name: protocol.name, digest: protocolDigest(protocol) },
    program: { name: 'program/waybill@0.1.0', sha256: zeros },
    subjects: Object.fromEntries(
      allArms(protocol).map(({ name, kind }) => [
        name,
        kind === 'session' ? [{ ...sampleFile, name: `checkpoint/${sampleFile.name}` }] : [],
      ]),
    ),
    items: Array.from({ length: items }, (_, item) => sha256Hex(Buffer.from(`item ${item}`))),
    slots: plannedSlots(protocol, items),
    startedAt: at,
    environment,
  });
}

/** Digest of a made-up row of logits: by item and token, the same for every arm. */
export const rowDigest = (item: number, index: number): string =>
  sha256Hex(Buffer.from(`row ${item} ${index}`));

/** A completed trial; `episodeNs` long, with two requests of three tokens. */
export function sampleTrial(slot: Slot, episodeNs: bigint, changes: Partial<TrialRecord> = {}): TrialRecord {
  const request = (index: number) => ({
    promptTokens: 4,
    newTokens: 3,
    finishReason: 'length',
    tokenIdsDigest: sha256Hex(Buffer.from(`tokens ${slot.item} ${index}`)),
    logitsDigests: [0, 1, 2].map((token) => rowDigest(slot.item, 3 * index + token)),
    prefillNs: String(episodeNs / 10n),
    decodeNs: String(episodeNs / 5n),
    totalNs: String((3n * episodeNs) / 10n),
    timeToFirstTokenNs: String(episodeNs / 10n + BigInt(index)),
    decodeStepNs: [String(episodeNs / 20n), String(episodeNs / 20n)],
  });
  return {
    format: runFormat,
    kind: 'trial',
    sequence: 1,
    previous: zeros,
    slot,
    attempt: 1,
    status: 'completed',
    error: null,
    difference: null,
    process: 0,
    fresh: false,
    startedAt: at,
    finishedAt: at,
    requests: [request(0), request(1)],
    times: { beganNs: '1000', endedNs: String(1000n + episodeNs), setupNs: null, recordingNs: '5' },
    bytes: {
      moved: { 'dense-weights': '600', 'packet-rows': '30', 'embedding-rows': '6', 'logits-readback': '99' },
      movedRows: { 'packet-rows': '3' },
      setupMoved: null,
      deviceRead: null,
      recording: '0',
    },
    peaks: {
      heldBytes: '5000',
      heldByCause: { kv: '100' },
      residentSetBytes: '9000',
      deviceUsedBytes: null,
      pinnedBytes: null,
    },
    samples: [{ elapsedNs: '1', residentSetBytes: '8000', heldBytes: '5000', deviceUsedBytes: null }],
    machine: { before: machine(), after: machine() },
    arm: {
      backend: 'cpu',
      kernels: 'wasm simd',
      kernelDigest: null,
      numerics: 'portable',
      threads: 1,
      policy: slot.arm === 'packets' ? 'packets' : 'stream',
      regime: 'C',
      budgetBytes: null,
      planDigest: zeros,
      plannedBytes: '5000',
    },
    ...changes,
  };
}

function machine() {
  return {
    loadAverageThousandths: '100',
    freeMemoryBytes: '1',
    clocksMegahertz: null,
    temperatureCelsius: null,
    throttleReasons: null,
  };
}

export function sampleEnd(changes: Partial<EndedRecord> = {}): EndedRecord {
  return {
    format: runFormat,
    kind: 'ended',
    sequence: 1,
    previous: zeros,
    at,
    status: 'completed',
    error: null,
    endState: {
      heldBytes: '0',
      residentSetBytesBefore: '1',
      residentSetBytesAfter: '1',
      childrenLeft: 0,
      scratchLeft: 0,
    },
    ...changes,
  };
}

export function sampleResume(nextSlot: number, brokenBlock: number | null): RunRecord {
  return {
    format: runFormat,
    kind: 'resumed',
    sequence: 1,
    previous: zeros,
    at,
    nextSlot,
    brokenBlock,
    environment,
  };
}

/** Numbers records and chains them to the manifest, and proves that they are of the format. */
export function chained(manifest: Manifest, records: readonly RunRecord[]): RunRecord[] {
  let previous = sha256Hex(Buffer.from(`${canonicalJson(manifest)}\n`));
  return records.map((record, index) => {
    const linked = recordSchema.parse({ ...record, sequence: index + 1, previous });
    previous = sha256Hex(Buffer.from(`${canonicalJson(linked)}\n`));
    return linked;
  });
}

/** A whole run: every slot completed, episodes as long as `episodeNs` says, ended. */
export function wholeRun(
  protocol: Protocol,
  episodeNs: (slot: Slot, index: number) => bigint,
  change: (trial: TrialRecord, index: number) => TrialRecord = (trial) => trial,
): { manifest: Manifest; records: RunRecord[] } {
  const manifest = sampleManifest(protocol);
  const trials = manifest.slots.map((slot, index) =>
    change(sampleTrial(slot, episodeNs(slot, index)), index),
  );
  return { manifest, records: chained(manifest, [...trials, sampleEnd()]) };
}
