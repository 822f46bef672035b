import { z } from 'zod';
import { gateFamilies } from './gate-schema.js';
import { decimalSchema, environmentSchema, sha256Schema, zonedTimeSchema } from './record-format.js';

/**
 * The accounting of a lab run, as an in-toto predicate (docs/formats/lab-archive.md). Everything in it follows from the
 * members of the archive. Integers that can pass 2^53 and all fractions are decimal strings.
 */
export const labPredicateType = 'urn:waybill:predicate:lab-run:v0.1';

/** https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md */
export const testResultType = 'https://in-toto.io/attestation/test-result/v0.1';

const text = z.string();
const count = z.int().nonnegative();
/** At most 12 significant digits. */
const fraction = z.string().regex(/^-?\d+(\.\d+)?(e[+-]\d+)?$/, 'a decimal number');
const verdict = z.enum(['pass', 'fail', 'inconclusive', 'unmeasured']);
const status = z.enum(['completed', 'interrupted', 'failed', 'different', 'killed']);
const interval = z.strictObject({ low: fraction, high: fraction, confidence: fraction });

export const effectSchema = z.strictObject({
  pairs: count,
  leftOut: count,
  /** Paired geometric mean. */
  ratio: fraction.nullable(),
  interval: interval.nullable(),
  bootstrap: interval.extend({ resamples: count, exhaustive: z.boolean() }).nullable(),
  orderEffects: z.array(z.strictObject({ place: count, ratio: fraction })),
  logDeviation: fraction.nullable(),
  ratioOfMedians: fraction.nullable(),
  logRatios: z.array(fraction),
  warnings: z.array(z.strictObject({ code: text, text })),
});

const gateSchema = z.strictObject({
  name: text,
  family: z.enum(gateFamilies),
  check: text,
  verdict,
  reason: text,
  figures: z.record(z.string(), z.string()),
  effect: effectSchema.nullable(),
});

/** What a part of the archive is and what it came to. */
const partSchema = z.strictObject({
  protocol: z.strictObject({ name: text, digest: sha256Schema, fileSha256: sha256Schema }),
  variant: z.enum(['measured', 'aa']),
  manifestSha256: sha256Schema,
  records: count,
  /** SHA-256 of the last record, of the manifest where there is none. */
  headSha256: sha256Schema,
  status,
  verdict,
  startedAt: zonedTimeSchema,
  finishedAt: zonedTimeSchema.nullable(),
});

const noiseFloorSchema = z.strictObject({
  metric: text,
  arm: text,
  against: text,
  floor: z
    .strictObject({ pairs: count, ratio: fraction, low: fraction, high: fraction, share: fraction })
    .nullable(),
});

/** A metric over an arm's trials: nearest-rank median, so every figure is one that was measured. */
const metricSchema = z.strictObject({
  count,
  of: count,
  least: decimalSchema.nullable(),
  median: decimalSchema.nullable(),
  most: decimalSchema.nullable(),
});

export const labPredicateSchema = z.strictObject({
  version: z.literal('0.1'),
  run: partSchema,
  gates: z.array(gateSchema),
  deviations: z.array(text),
  violations: z.array(text),
  accounts: z.array(
    z.strictObject({
      arm: text,
      metrics: z.record(z.string(), metricSchema),
      /** Over the arm's trials that count; null where one of them does not hold it. */
      movedBytes: z.record(z.string(), decimalSchema).nullable(),
    }),
  ),
  environment: environmentSchema,
  noise: z.strictObject({ run: partSchema, floors: z.array(noiseFloorSchema) }).nullable(),
  attempts: z.array(partSchema),
  /** SHA-256 over the canonical statement without this field: shows damage; only a signature shows an author. */
  seal: sha256Schema,
});
export type LabPredicate = z.infer<typeof labPredicateSchema>;
export type PartSummary = z.infer<typeof partSchema>;
export type EffectSummary = z.infer<typeof effectSchema>;

export const testResultSchema = z.strictObject({
  result: z.enum(['PASSED', 'FAILED']),
  configuration: z
    .array(z.strictObject({ name: text, digest: z.strictObject({ sha256: sha256Schema }) }))
    .min(1),
  passedTests: z.array(text),
  failedTests: z.array(text),
});
export type TestResult = z.infer<typeof testResultSchema>;
