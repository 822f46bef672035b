import { z } from 'zod';
import { type Arm, armSchema, kebab, modelSchema, referenceArmSchema } from './arm-schema.js';
import { gateSchema } from './gate-schema.js';
import { metricNames } from './metric-names.js';
import { sha256Schema, zonedTimeSchema } from './record-format.js';

export type { ArchivedArm, Arm, CommandArm, LiveArm, SessionArm } from './arm-schema.js';

/**
 * A protocol: everything that decides a verdict, said before anything is measured (docs/formats/lab-protocol.md;
 * JSON Schema in docs/formats/protocol.schema.json).
 */
export const protocolVersion = 1;

const sentence = z.string().trim().min(1);
const tokenId = z.int().min(0).max(0x7fffffff);

/** A prompt: ids as they are, or text of which exactly `tokens` ids are used. */
const promptSchema = z.union([
  z.strictObject({ promptIds: z.array(tokenId).min(1) }),
  z.strictObject({ text: z.string().min(1), tokens: z.int().min(1) }),
]);
export type ProtocolPrompt = z.infer<typeof promptSchema>;

const workloadSchema = z.strictObject({
  /** `fresh`: not looked at before; `known`: used while the change was made; `reused`: after a failed attempt. */
  kind: z.enum(['fresh', 'known', 'reused']),
  /** Each item is one episode: its prompts are run one after another. Blocks take the items in turn. */
  items: z.union([
    z.array(z.strictObject({ prompts: z.array(promptSchema).min(1) })).min(1),
    /** Lines `{"prompts": [...]}`; digest over the salt in `<file>.salt` (32 bytes, hex) and the file's bytes. */
    z.strictObject({ file: z.string().min(1), saltedSha256: sha256Schema }),
  ]),
  newTokens: z.int().min(1),
  /** Token ids go into the records. */
  includeContent: z.boolean(),
});

/**
 * Looks at which the run may stop because every gate on time is decided; their intervals are widened so that all looks
 * together keep the stated confidence (docs/lab-statistics.md).
 */
const sequentialSchema = z.strictObject({
  /** Blocks after which to look, rising; the last is `blocks`. */
  looks: z.array(z.int().min(1)).min(2).max(20),
  /** How the error is spent over the looks (Lan and DeMets, 1983). */
  spending: z.enum(['obrien-fleming', 'pocock']),
});

const scheduleSchema = z.strictObject({
  /** Up to 2^53 - 1. */
  seed: z.int().min(0),
  /** Blocks in which every arm runs once; pairs where there are two arms. Without `sequential` as many are run: nobody looks and then goes on. */
  blocks: z.int().min(1).max(100_000),
  sequential: sequentialSchema.optional(),
  /** `balanced`, or arm names in the order of all trials; an order that confounds drift with effect is refused. */
  order: z.union([z.literal('balanced'), z.array(kebab).min(1)]),
  /** Unmeasured trials of each arm before the first block, recorded and checked. */
  warmUps: z.int().min(0).max(1000),
});

const referenceSchema = z.strictObject({
  /** Arm that gives bits to compare with; it is in no block and in no gate on time. */
  arm: referenceArmSchema,
  when: z.enum(['first', 'last']),
});

const version = z.string().regex(/^\d+\.\d+\.\d+$/, 'a version such as "0.1.0"');

export const protocolSchema = z.strictObject({
  protocol: z.literal(protocolVersion),
  name: kebab,
  question: sentence,
  program: z.union([z.literal('any'), z.strictObject({ atLeast: version, below: version })]),
  supersedes: z.strictObject({ digest: sha256Schema, reason: sentence }).optional(),
  /** `process-per-trial` for first use: nothing is warm, every trial sets up. */
  isolation: z.enum(['shared-process', 'process-per-trial']),
  /** Processes of others that compute on the GPU of the run: written into the records, or the end of the run. */
  foreignProcesses: z.enum(['recorded', 'fatal']).optional(),
  model: modelSchema.optional(),
  arms: z.array(armSchema).min(1).max(26),
  reference: referenceSchema.optional(),
  workload: workloadSchema,
  schedule: scheduleSchema,
  /** What the report shows; gates may use others. */
  metrics: z.array(z.enum(metricNames)).min(1).max(metricNames.length),
  gates: z.array(gateSchema).min(1).max(200),
  /** Confidence of intervals that are shown and of no gate of their own. */
  confidence: z.number().gt(0.5).lt(1),
  nonClaims: z.array(sentence).min(1),
  /** Put here by `freeze`. */
  frozen: z.strictObject({ digest: sha256Schema, at: zonedTimeSchema }).optional(),
});
export type Protocol = z.infer<typeof protocolSchema>;

/** The arms of the blocks and the reference, each once. */
export function allArms(protocol: Protocol): Arm[] {
  return protocol.reference === undefined ? protocol.arms : [...protocol.arms, protocol.reference.arm];
}
