import { z } from 'zod';
import { policyNames } from '../acquire/policy.js';
import { backendNames, kernelChoices } from '../backend/open.js';
import { parseByteSize } from '../base/byte-size.js';
import { gateSchema } from './gate-schema.js';
import { metricNames } from './metric-names.js';
import { sha256Schema, zonedTimeSchema } from './record-format.js';

/**
 * A protocol: everything that decides a verdict, said before anything is measured (docs/formats/lab-protocol.md;
 * JSON Schema in docs/formats/protocol.schema.json).
 */
export const protocolVersion = 1;

const kebab = z.string().regex(/^[a-z0-9]+([.-][a-z0-9]+)*$/, 'lower-case words joined by "-"');
const sentence = z.string().trim().min(1);
const tokenId = z.int().min(0).max(0x7fffffff);

const byteSize = z.string().refine((text) => {
  try {
    return parseByteSize(text) > 0;
  } catch {
    return false;
  }
}, 'a size in bytes, such as "4800MiB"');

/** An arm that runs in this program. Every option is stated, so that no default can change what was frozen. */
const sessionArmSchema = z.strictObject({
  kind: z.literal('session'),
  name: kebab,
  /** Arms of one group must give the same bits. */
  group: kebab,
  policy: z.enum(policyNames),
  backend: z.enum(backendNames),
  kernels: z.enum(kernelChoices),
  threads: z.int().min(1).max(1024),
  kv: z.enum(['f16', 'f32']),
  /** The allowance: most bytes to hold; `none` for no limit. */
  budget: z.union([z.literal('none'), byteSize]),
  /** With a device: most bytes of page-locked host memory. Stated there, and nowhere else. */
  hostBudget: z.union([z.literal('none'), byteSize]).optional(),
  /** Of policy `retention`, and stated there: `lru:<rows a layer>`. */
  retain: z.string().min(1).optional(),
  /** Of policy `forecast`, and stated there. */
  forecast: z.enum(['early', 'late']).optional(),
  contextPositions: z.int().min(1),
  prefillChunk: z.int().min(1),
  /** Memory samples while a trial runs. An arm without them shows what they cost. */
  samples: z.boolean(),
});
export type SessionArm = z.infer<typeof sessionArmSchema>;

/** An arm that is somebody's program; it speaks JSON lines (docs/formats/lab-command.md). */
const commandArmSchema = z.strictObject({
  kind: z.literal('command'),
  name: kebab,
  group: kebab,
  /** Program and arguments, no shell. `{model}` stands for the model's folder, `{protocol}` for the protocol's. */
  command: z.array(z.string().min(1)).min(1),
  /** Files whose digests are recorded, relative to the protocol. */
  files: z.array(z.string().min(1)),
  timeoutSeconds: z.int().min(1).max(86_400),
});
export type CommandArm = z.infer<typeof commandArmSchema>;

const armSchema = z.discriminatedUnion('kind', [sessionArmSchema, commandArmSchema]);
export type Arm = z.infer<typeof armSchema>;

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

const scheduleSchema = z.strictObject({
  /** Up to 2^53 - 1. */
  seed: z.int().min(0),
  /** Blocks in which every arm runs once; pairs where there are two arms. Fixed: nobody looks and then goes on. */
  blocks: z.int().min(1).max(100_000),
  /** `balanced`, or arm names in the order of all trials; an order that confounds drift with effect is refused. */
  order: z.union([z.literal('balanced'), z.array(kebab).min(1)]),
  /** Unmeasured trials of each arm before the first block, recorded and checked. */
  warmUps: z.int().min(0).max(1000),
});

const referenceSchema = z.strictObject({
  /** Arm that gives bits to compare with; it is in no block and in no runtime gate. */
  arm: armSchema,
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
  /** Folder relative to the protocol, and the digest of its files that decides. */
  model: z.strictObject({ path: z.string().min(1), sourceDigest: sha256Schema }).optional(),
  arms: z.array(armSchema).min(1).max(26),
  reference: referenceSchema.optional(),
  workload: workloadSchema,
  schedule: scheduleSchema,
  /** What the report shows; gates may use others. */
  metrics: z.array(z.enum(metricNames)).min(1),
  gates: z.array(gateSchema).min(1),
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
