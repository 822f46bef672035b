import { z } from 'zod';
import { canonicalJson } from '../base/canonical-json.js';
import { InputError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { quantisedTypes } from '../base/quantised-type.js';
import { lowBitNames } from './low-bit.js';
import { largestDirections } from './low-bit-layout.js';

/** Names inside a folder of derived weights; docs/formats/prepared.md describes each. */
export const lowBitFiles = {
  manifest: 'manifest.json',
  digest: 'manifest.sha256',
  data: 'data.bin',
} as const;

export const lowBitManifestFormat = 'waybill-low-bit';
export const lowBitManifestVersion = 1;

const digest = z.string().regex(/^[0-9a-f]{64}$/);
const byteCount = z
  .string()
  .regex(/^(0|[1-9][0-9]{0,15})$/)
  .refine((text) => Number.isSafeInteger(Number(text)), 'is above 2^53 - 1');

const entrySchema = z.strictObject({
  id: z.string(),
  /** `rows`: the matrix itself, neuron-major; `q8`, `q4`: quantised, to compute with. */
  format: z.enum(['rows', ...lowBitNames, ...quantisedTypes]),
  directions: z.int().nonnegative().max(largestDirections),
  directionExponent: z.int().nonnegative().max(20),
  byteOffset: byteCount,
  byteLength: byteCount,
  sha256: digest,
});
export type LowBitEntry = z.infer<typeof entrySchema>;

const manifestSchema = z.strictObject({
  format: z.literal(lowBitManifestFormat),
  version: z.literal(lowBitManifestVersion),
  /** SHA-256 of the manifest of the prepared form that this was made from. */
  prepared: digest,
  byteLength: byteCount,
  entries: z.array(entrySchema),
});
export type LowBitManifest = z.infer<typeof manifestSchema>;

export function encodeLowBitManifest(manifest: LowBitManifest): Uint8Array {
  return Buffer.from(canonicalJson(manifest), 'utf8');
}

/** Null where another version wrote it. Throws `InputError` `low-bit-manifest`, or `json-*` where it is no JSON. */
export function decodeLowBitManifest(bytes: Uint8Array, path: string): LowBitManifest | null {
  const value = parseJson(bytes, path);
  const known = z.looseObject({ format: z.literal(lowBitManifestFormat), version: z.int() }).safeParse(value);
  if (known.success && known.data.version !== lowBitManifestVersion) return null;
  const parsed = manifestSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new InputError(
    'low-bit-manifest',
    `Cannot read "${path}": "${issue?.path.join('.') ?? ''}" is not as the format says: ${issue?.message ?? 'unknown reason'}`,
    { path },
  );
}
