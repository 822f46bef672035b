import { Document } from 'yaml';
import { uniform } from '../base/philox.js';
import { parseProtocol } from './protocol-file.js';
import type { Protocol, SessionArm } from './protocol-schema.js';

/** What a new protocol is written for. */
export interface TemplateFacts {
  readonly name: string;
  /** As the protocol will say it: relative to its folder, or absolute. */
  readonly modelPath: string;
  readonly sourceDigest: string;
  readonly vocabSize: number;
  readonly maxPositions: number;
  readonly hasTokenizer: boolean;
  readonly prompts: { readonly file: string; readonly saltedSha256: string } | null;
  readonly threads: number;
  /** Allowance of both arms: with less than the whole model, bytes move. */
  readonly budgetBytes: number;
}

const promptTokens = 16;
const newTokens = 8;
const texts = [
  'The old house stood at the end of the road, and every evening a light could be seen in the upper window by all who passed.',
  'Rivers carry sand and gravel from the mountains to the sea, and what they leave behind on the way becomes the soil of the plain.',
] as const;

/**
 * A protocol to begin with: packets against a stream on one model, ten pairs. It parses as it is; its author changes
 * question, arms, prompts and bounds before it is frozen.
 */
export function protocolTemplate(facts: TemplateFacts): string {
  const data: Protocol = {
    protocol: 1,
    name: facts.name,
    question: 'Do packets give the bits of a stream, with fewer bytes, and in no more time?',
    program: 'any',
    isolation: 'shared-process',
    model: { path: facts.modelPath, sourceDigest: facts.sourceDigest },
    arms: [arm('stream', facts), arm('packets', facts)],
    workload: { kind: 'known', items: facts.prompts ?? items(facts), newTokens, includeContent: false },
    schedule: { seed: 1, blocks: 10, order: 'balanced', warmUps: 1 },
    metrics: ['episode-ns', 'time-to-first-token-ns', 'decode-call-ns', 'moved-bytes', 'peak-held-bytes'],
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
      { name: 'every trial', family: 'resources', check: 'complete' },
      { name: 'nothing left behind', family: 'resources', check: 'clean-end' },
    ],
    confidence: 0.95,
    nonClaims: ['Nothing is said of other models, prompts, lengths or machines.'],
  };
  const document = new Document(data);
  document.commentBefore =
    ' A lab protocol (docs/formats/lab-protocol.md). Change it, then freeze it: waybill lab freeze';
  const text = document.toString({ lineWidth: 0 });
  parseProtocol(Buffer.from(text, 'utf8'), facts.name);
  return text;
}

/** Positions that the template's episodes have room in. */
export function templatePositions(maxPositions: number): number {
  return Math.min(64, maxPositions);
}

export { promptTokens as templateChunk };

function arm(
  policy: 'stream' | 'packets',
  { threads, maxPositions, budgetBytes }: TemplateFacts,
): SessionArm {
  return {
    kind: 'session',
    name: policy,
    group: 'f16',
    policy,
    backend: 'cpu',
    kernels: 'auto',
    threads,
    kv: 'f16',
    budget: String(budgetBytes),
    contextPositions: templatePositions(maxPositions),
    prefillChunk: promptTokens,
    samples: true,
  };
}

/** Two items; without a tokenizer, ids from a fixed seed. */
function items({
  hasTokenizer,
  vocabSize,
}: TemplateFacts): Exclude<Protocol['workload']['items'], { file: string }> {
  if (hasTokenizer) return texts.map((text) => ({ prompts: [{ text, tokens: promptTokens }] }));
  return texts.map((_, item) => ({
    prompts: [
      {
        promptIds: Array.from({ length: promptTokens }, (_, index) =>
          Math.floor(uniform(1, item, index) * vocabSize),
        ),
      },
    ],
  }));
}
