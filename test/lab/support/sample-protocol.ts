import { stringify } from 'yaml';
import { sourceDigest } from '../../../src/checkpoint/source-digest.js';
import type { Protocol, SessionArm } from '../../../src/lab/protocol-schema.js';

/** A session arm over the smallest kernels that every machine has. */
export function sessionArm(name: string, changes: Partial<SessionArm> = {}): SessionArm {
  return {
    kind: 'session',
    name,
    group: 'f16',
    policy: 'stream',
    backend: 'cpu',
    kernels: 'wasm',
    threads: 1,
    kv: 'f16',
    budget: 'none',
    contextPositions: 64,
    prefillChunk: 16,
    samples: true,
    ...changes,
  };
}

/** The one file of the model that sample runs ran. */
export const sampleFile = { name: 'model.safetensors', sha256: 'b'.repeat(64) };

/** A protocol of two arms that every rule accepts. */
export function sampleProtocol(changes: Partial<Protocol> = {}): Protocol {
  return {
    protocol: 1,
    name: 'sample',
    question: 'Do packets give the same bits as a stream, in fewer bytes?',
    program: 'any',
    isolation: 'shared-process',
    model: { path: 'model', sourceDigest: sourceDigest([sampleFile]) },
    arms: [sessionArm('stream'), sessionArm('packets', { policy: 'packets' })],
    workload: {
      kind: 'known',
      items: [{ prompts: [{ promptIds: [2, 100, 524] }] }],
      newTokens: 3,
      includeContent: false,
    },
    schedule: { seed: 7, blocks: 10, order: 'balanced', warmUps: 1 },
    metrics: ['episode-ns', 'moved-bytes'],
    gates: [
      { name: 'same bits', family: 'faithfulness', check: 'bit-equal', arms: ['stream', 'packets'] },
      {
        name: 'fewer bytes',
        family: 'acquisition',
        check: 'share-at-most',
        arm: 'packets',
        of: 'stream',
        metric: 'moved-bytes',
        bound: '0.75',
      },
      {
        name: 'not slower',
        family: 'runtime',
        check: 'ratio-at-most',
        arm: 'packets',
        against: 'stream',
        metric: 'episode-ns',
        bound: '1.00',
        confidence: 0.95,
      },
    ],
    confidence: 0.95,
    nonClaims: ['Nothing is said of other models.'],
    ...changes,
  };
}

export function yamlBytes(data: unknown): Uint8Array {
  return Buffer.from(stringify(data, { aliasDuplicateObjects: false }), 'utf8');
}
