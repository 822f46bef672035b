import { z } from 'zod';

/** In-toto Attestation Framework, Statement v1. */
export const statementType = 'https://in-toto.io/Statement/v1';

/** Its name says what it is: `checkpoint/<file>`, `prepared/manifest.json`, `program/waybill@<version>`. */
export const subjectSchema = z.strictObject({
  name: z.string().min(1),
  digest: z.strictObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }),
});
export type Subject = z.infer<typeof subjectSchema>;

export const statementSchema = z.strictObject({
  _type: z.literal(statementType),
  subject: z.array(subjectSchema).min(1),
  predicateType: z.string(),
  predicate: z.record(z.string(), z.unknown()),
});
export type Statement = z.infer<typeof statementSchema>;
