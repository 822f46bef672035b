import type { RunPredicate } from '../../src/receipt/run-predicate.js';
import type { Subject } from '../../src/receipt/statement.js';

const hex = (digit: string): string => digit.repeat(64);

export const sampleSubjects: Subject[] = [
  { name: 'program/waybill@0.1.0', digest: { sha256: hex('c') } },
  { name: 'checkpoint/config.json', digest: { sha256: hex('a') } },
  { name: 'prepared/manifest.json', digest: { sha256: hex('b') } },
];

/** A consistent record of a small run. */
export function sampleRun(): Omit<RunPredicate, 'seal'> {
  return {
    version: '0.1',
    status: 'completed',
    startedAt: '2026-01-02T03:04:05.000+00:00',
    finishedAt: '2026-01-02T03:04:06.000+00:00',
    numerics: 'portable',
    backend: {
      name: 'cpu',
      kernels: 'native avx2',
      reason: 'best of the processor',
      threads: 2,
      kernelDigest: hex('d'),
    },
    policy: 'packets',
    regime: 'C',
    budgetBytes: '1000',
    plan: {
      digest: hex('e'),
      components: [
        { label: 'kv cache', cause: 'kv', bytes: '300' },
        { label: 'weights', cause: 'dense-weights', bytes: '500' },
      ],
      plannedBytes: '800',
    },
    options: {
      kv: 'f16',
      contextPositions: 64,
      prefillChunk: 32,
      maxNewTokens: 2,
      temperature: 0.5,
      topK: 0,
      topP: 1,
      minP: 0,
      seed: '7',
      stopStrings: 0,
      ignoreEos: false,
    },
    requests: [
      {
        promptTokens: 3,
        newTokens: 2,
        finishReason: 'length',
        promptIdsDigest: hex('1'),
        tokenIdsDigest: hex('2'),
        logitsDigests: [hex('3'), hex('4')],
      },
    ],
    bytes: {
      moved: { 'packet-rows': '120', 'dense-weights': '0' },
      movedRows: { 'packet-rows': '12', 'dense-weights': '0' },
      movedTotal: '120',
      heldPeak: { kv: '300', 'dense-weights': '500' },
      heldPeakTotal: '800',
      setupMoved: { setup: '500' },
      deviceRead: '0',
      reads: 'warm',
    },
    peaks: { heldBytes: '800', residentSetBytes: '90000000' },
    times: {
      openNs: '5',
      prefillNs: '10',
      decodeNs: '20',
      totalNs: '30',
      timeToFirstTokenNs: '10',
      decodeStepNs: ['18'],
    },
    environment: {
      platform: 'linux',
      architecture: 'x64',
      node: 'v20.20.2',
      processor: 'a processor',
      processors: 2,
      memoryBytes: '1',
    },
  };
}
