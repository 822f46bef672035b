import { z } from 'zod';

/**
 * The accounting of one run, as an in-toto predicate (docs/formats/run-receipt.md). Integers that can pass 2^53 (ns,
 * bytes) are decimal strings.
 */
export const runPredicateType = 'urn:waybill:predicate:run:v0.1';

const decimal = z.string().regex(/^(0|[1-9]\d*)$/, 'a decimal integer');
const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'a SHA-256 in lower-case hex');
const bytesByCause = z.record(z.string(), decimal);

const requestSchema = z.strictObject({
  promptTokens: z.int().nonnegative(),
  newTokens: z.int().nonnegative(),
  finishReason: z.enum(['stop', 'length', 'interrupted']),
  /** SHA-256 over salt and the ids as little-endian U32; the salt stays with the owner. */
  promptIdsDigest: sha256,
  tokenIdsDigest: sha256,
  /** One a new token. */
  logitsDigests: z.array(sha256),
  /** Only with content included. */
  content: z
    .strictObject({ promptIds: z.array(z.int()), tokenIds: z.array(z.int()), text: z.string() })
    .optional(),
});

export const runPredicateSchema = z.strictObject({
  version: z.literal('0.1'),
  status: z.enum(['completed', 'interrupted', 'failed']),
  startedAt: z.iso.datetime({ offset: true }),
  finishedAt: z.iso.datetime({ offset: true }),
  numerics: z.enum(['portable', 'native']),
  backend: z.strictObject({
    name: z.string(),
    kernels: z.string(),
    reason: z.string(),
    threads: z.int().positive(),
    kernelDigest: sha256.nullable(),
  }),
  policy: z.string(),
  /** Whether results have the bits of the checkpoint's weights: false for quantised ones. Absent in older receipts. */
  exact: z.boolean().optional(),
  regime: z.string(),
  budgetBytes: decimal.nullable(),
  plan: z.strictObject({
    digest: sha256,
    components: z.array(z.strictObject({ label: z.string(), cause: z.string(), bytes: decimal })),
    plannedBytes: decimal,
  }),
  options: z.strictObject({
    kv: z.enum(['f16', 'f32']),
    contextPositions: z.int().positive(),
    prefillChunk: z.int().positive(),
    maxNewTokens: z.int().positive(),
    temperature: z.number(),
    topK: z.int(),
    topP: z.number(),
    minP: z.number(),
    seed: decimal,
    stopStrings: z.int().nonnegative(),
    ignoreEos: z.boolean(),
  }),
  requests: z.array(requestSchema),
  bytes: z.strictObject({
    moved: bytesByCause,
    movedRows: bytesByCause,
    movedTotal: decimal,
    heldPeak: bytesByCause,
    heldPeakTotal: decimal,
    setupMoved: bytesByCause,
    deviceRead: decimal.nullable(),
    reads: z.enum(['cold', 'warm', 'mixed', 'none', 'unknown']),
  }),
  peaks: z.strictObject({
    heldBytes: decimal,
    residentSetBytes: decimal,
    /** Only of backends with a device of their own. */
    device: z
      .strictObject({
        /** Peak of the backend's own buffers, beside context and kernels. */
        allocatedBytes: decimal,
        pinnedBytes: decimal,
        /** False where the process has had a whole model on the device, in this run or before. */
        boundedStart: z.boolean(),
        /** What the system counted; null where it cannot tell. */
        sampled: z
          .strictObject({
            source: z.enum(['process', 'baseline', 'shared']),
            peakBytes: decimal,
            samples: z.int().positive(),
            intervalMs: z.number().positive(),
            longestGapMs: z.number().nonnegative(),
          })
          .nullable(),
      })
      .optional(),
  }),
  times: z.strictObject({
    openNs: decimal,
    prefillNs: decimal,
    decodeNs: decimal,
    totalNs: decimal,
    timeToFirstTokenNs: decimal.nullable(),
    decodeStepNs: z.array(decimal),
  }),
  environment: z.strictObject({
    platform: z.string(),
    architecture: z.string(),
    node: z.string(),
    processor: z.string(),
    processors: z.int().positive(),
    memoryBytes: decimal,
  }),
  /** SHA-256 over the canonical statement without this field: shows damage; only a signature shows an author. */
  seal: sha256,
});
export type RunPredicate = z.infer<typeof runPredicateSchema>;
