import { z } from 'zod';
import { policyNames } from '../acquire/policy.js';
import { backendNames, kernelChoices } from '../backend/open.js';
import { parseByteSize } from '../base/byte-size.js';
import { sha256Schema } from './record-format.js';

/** Lower-case words, for names of protocols, arms and groups. */
export const kebab = z.string().regex(/^[a-z0-9]+([.-][a-z0-9]+)*$/, 'lower-case words joined by "-"');

const byteSize = z.string().refine((text) => {
  try {
    return parseByteSize(text) > 0;
  } catch {
    return false;
  }
}, 'a size in bytes, such as "4800MiB"');

/** Folder of a checkpoint relative to the protocol, and the digest of its files that decides. */
export const modelSchema = z.strictObject({ path: z.string().min(1), sourceDigest: sha256Schema });

const optionValue = z.union([z.string(), z.number(), z.boolean()]);

/** An arm that runs in this program. Every option is stated, so that no default can change what was frozen. */
const sessionArmSchema = z.strictObject({
  kind: z.literal('session'),
  name: kebab,
  /** Arms of one group must give the same bits. */
  group: kebab,
  /** Where it is another checkpoint than the protocol's: the same model in another type. Prompts stay those of the protocol's. */
  model: modelSchema.optional(),
  policy: z.enum(policyNames),
  backend: z.enum(backendNames),
  kernels: z.enum(kernelChoices),
  /** Refused at setup where the backend computes in others. */
  numerics: z.enum(['portable', 'native']).optional(),
  threads: z.int().min(1).max(1024),
  kv: z.enum(['f16', 'f32']),
  /** The allowance: most bytes to hold; `none` for no limit. */
  budget: z.union([z.literal('none'), byteSize]),
  /** With a device: most bytes of page-locked host memory. Stated there, and nowhere else. */
  hostBudget: z.union([z.literal('none'), byteSize]).optional(),
  /** Of policy `retention`, and stated there: `lru:<rows a layer>`, or `hot:auto` with a profile. */
  retain: z.string().min(1).optional(),
  /** Recorded activation profile, relative to the protocol (`waybill profile`). */
  profile: z.strictObject({ file: z.string().min(1), sha256: sha256Schema }).optional(),
  /** Of policy `forecast`, and stated there. */
  forecast: z.enum(['early', 'late']).optional(),
  /** A draft model that proposes tokens. */
  draft: modelSchema.optional(),
  contextPositions: z.int().min(1),
  prefillChunk: z.int().min(1),
  /** Memory samples while a trial runs. An arm without them shows what they cost. */
  samples: z.boolean(),
  /** Logits rows go into the records of the arm's first trial of each item, for gates that need more than digests. */
  keepLogits: z.boolean().optional(),
  /** Further options of a session by their names in the library (`sessionOptions`), which checks them. */
  options: z.record(z.string().regex(/^[a-z][A-Za-z0-9]*$/), optionValue).optional(),
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
  /** Asks the program for its logits rows in the first trial of each item. */
  keepLogits: z.boolean().optional(),
  timeoutSeconds: z.int().min(1).max(86_400),
});
export type CommandArm = z.infer<typeof commandArmSchema>;

/** Results that an archive holds already; only a reference may come so. */
const archivedArmSchema = z.strictObject({
  kind: z.literal('archive'),
  name: kebab,
  group: kebab,
  /** Relative to the protocol; the digest of its bytes decides. */
  archive: z.strictObject({ file: z.string().min(1), sha256: sha256Schema }),
  /** Name of the arm in the archive's protocol. */
  arm: kebab,
});
export type ArchivedArm = z.infer<typeof archivedArmSchema>;

/** Arms that run trials. */
export const armSchema = z.discriminatedUnion('kind', [sessionArmSchema, commandArmSchema]);
export type LiveArm = z.infer<typeof armSchema>;

export const referenceArmSchema = z.discriminatedUnion('kind', [
  sessionArmSchema,
  commandArmSchema,
  archivedArmSchema,
]);
export type Arm = z.infer<typeof referenceArmSchema>;
