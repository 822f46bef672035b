import { z } from 'zod';
import { canonicalJson } from '../base/canonical-json.js';
import { InputError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { descriptionSchema } from './description-schema.js';
import { planWeights, weightsAlignment } from './prepared-layout.js';

/** Names inside a prepared directory; docs/formats/prepared.md describes each. */
export const preparedNames = {
  manifest: 'manifest.json',
  digest: 'manifest.sha256',
  weights: 'weights.bin',
} as const;

export const manifestFormat = 'waybill-prepared';
export const manifestVersion = 1;

const digest = z.string().regex(/^[0-9a-f]{64}$/);
/** Byte counts are decimal strings, as in every file of Waybill. */
const byteCount = z
  .string()
  .regex(/^(0|[1-9][0-9]{0,15})$/)
  .refine((text) => Number.isSafeInteger(Number(text)), 'is above 2^53 - 1');
const index = z.int().nonnegative();

const tensorSchema = z.strictObject({
  id: z.string(),
  sourceTensor: z.string(),
  type: z.enum(['f32', 'f16', 'bf16']),
  shape: z.array(z.int().positive()).min(1).max(2),
  byteOffset: byteCount,
  byteLength: byteCount,
  sha256: digest,
  finite: z.boolean(),
  nonFinite: z
    .strictObject({
      count: z.int().positive(),
      first: z.strictObject({ row: index, column: index, value: z.enum(['NaN', 'Infinity', '-Infinity']) }),
    })
    .nullable(),
});

export const manifestSchema = z.strictObject({
  format: z.literal(manifestFormat),
  version: z.literal(manifestVersion),
  source: z.strictObject({
    digest,
    files: z.array(z.strictObject({ name: z.string(), byteLength: byteCount, sha256: digest })).min(1),
  }),
  description: descriptionSchema,
  weights: z.strictObject({
    file: z.literal(preparedNames.weights),
    byteLength: byteCount,
    alignment: z.literal(String(weightsAlignment)),
  }),
  tensors: z.array(tensorSchema),
});

export type PreparedManifest = z.infer<typeof manifestSchema>;
export type ManifestTensor = z.infer<typeof tensorSchema>;

/** RFC 8785 bytes: equal checkpoints give equal manifests, on every machine. */
export function encodeManifest(manifest: PreparedManifest): Uint8Array {
  return Buffer.from(canonicalJson(manifest), 'utf8');
}

/** The line that `sha256sum manifest.json` prints, so that a stranger's `sha256sum -c` checks it. */
export function manifestDigestLine(manifestDigest: string): string {
  return `${manifestDigest}  ${preparedNames.manifest}\n`;
}

/**
 * Reads a manifest. Throws `InputError`: `json-*` where it is no JSON, `prepared-version` where another version of
 * Waybill wrote it, `prepared-manifest` where a field is missing, unknown or contradicts the description.
 */
export function decodeManifest(bytes: Uint8Array, path: string): PreparedManifest {
  const value = parseJson(bytes, path);
  const version = z.looseObject({ format: z.literal(manifestFormat), version: z.int() }).safeParse(value);
  if (version.success && version.data.version !== manifestVersion) {
    throw new InputError(
      'prepared-version',
      `Cannot read "${path}": it has version ${version.data.version} of the prepared form, this program reads version ${manifestVersion}`,
      { path, version: version.data.version, wanted: manifestVersion },
    );
  }
  const parsed = manifestSchema.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const field =
      issue === undefined || issue.path.length === 0 ? 'the document' : `"${issue.path.join('.')}"`;
    throw refusal(path, `${field} is not as the format says: ${issue?.message ?? 'unknown reason'}`);
  }
  checkAgainstPlan(parsed.data, path);
  return parsed.data;
}

/** The description fixes every tensor's place; a manifest that says otherwise cannot be trusted with offsets. */
function checkAgainstPlan(manifest: PreparedManifest, path: string): void {
  const plan = planWeights(manifest.description);
  if (manifest.tensors.length !== plan.tensors.length) {
    throw refusal(
      path,
      `it lists ${manifest.tensors.length} tensors, its description has ${plan.tensors.length}`,
    );
  }
  if (manifest.weights.byteLength !== String(plan.byteLength)) {
    throw refusal(
      path,
      `its weights file has ${manifest.weights.byteLength} bytes, its description needs ${plan.byteLength}`,
    );
  }
  plan.tensors.forEach((planned, position) => {
    const listed = manifest.tensors[position]!;
    const same =
      listed.id === planned.id &&
      listed.sourceTensor === planned.sourceTensor &&
      listed.type === planned.type &&
      listed.shape.join() === planned.shape.join() &&
      listed.byteOffset === String(planned.byteOffset) &&
      listed.byteLength === String(planned.byteLength) &&
      listed.finite === (listed.nonFinite === null);
    if (!same)
      throw refusal(
        path,
        `tensor "${listed.id}" contradicts the description, which has "${planned.id}" there`,
      );
  });
  if (new Set(plan.tensors.map(({ id }) => id)).size !== plan.tensors.length) {
    throw refusal(path, 'its description has two tensors of one id');
  }
}

function refusal(path: string, reason: string): InputError {
  return new InputError('prepared-manifest', `Cannot read "${path}": ${reason}`, { path });
}
