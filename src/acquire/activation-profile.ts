import { z } from 'zod';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { InputError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { guessFeatures, type RecordedGuesser, recordedLength } from './guess-table.js';

export const profileFormat = 'waybill-activation-profile';
export const profileVersion = 1;

const digest = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.int().nonnegative();

/** How often each neuron's row was used by a text: docs/formats/activation-profile.md. */
export const activationProfileSchema = z.strictObject({
  format: z.literal(profileFormat),
  version: z.literal(profileVersion),
  /** Digest of the source checkpoint. */
  checkpoint: digest,
  tokens: z.int().positive(),
  /** Matrices whose rows are neurons, in the order of use. */
  matrices: z
    .array(
      z.strictObject({
        id: z.string(),
        /** By neuron: tokens in which its row was needed. */
        counts: z.array(count).min(1),
        /** Uses of rows that the token before had used, too. */
        repeats: count,
      }),
    )
    .min(1),
  /** The `rows` rows used most account for `uses` uses. */
  coverage: z.array(z.strictObject({ rows: count, uses: count })),
  /** Where it was asked for: tables that guess rows from a layer's input. */
  guesser: z
    .strictObject({
      features: z.literal(guessFeatures),
      tables: z.array(z.strictObject({ id: z.string(), weights: z.base64() })),
    })
    .optional(),
});
export type ActivationProfile = z.infer<typeof activationProfileSchema>;
export type ProfiledMatrix = ActivationProfile['matrices'][number];

/** Shares of all rows at which the coverage curve is recorded. */
const curveShares = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1];

/** Puts a profile together from counts; the coverage curve follows from them. */
export function makeProfile(
  checkpoint: string,
  tokens: number,
  matrices: readonly ProfiledMatrix[],
  guesser?: RecordedGuesser,
): ActivationProfile {
  return {
    format: profileFormat,
    version: profileVersion,
    checkpoint,
    tokens,
    matrices: [...matrices],
    coverage: coverageCurve(matrices),
    ...(guesser === undefined
      ? {}
      : { guesser: { features: guessFeatures, tables: guesser.tables.map((table) => ({ ...table })) } }),
  };
}

function coverageCurve(matrices: readonly ProfiledMatrix[]): ActivationProfile['coverage'] {
  const counts = Float64Array.from(matrices.flatMap((matrix) => matrix.counts))
    .sort()
    .reverse();
  const points = curveShares.map((share) => Math.ceil(share * counts.length));
  let [rows, uses] = [0, 0];
  return points.map((point) => {
    while (rows < point) uses += counts[rows++]!;
    return { rows, uses };
  });
}

/** SHA-256 of the canonical JSON of a profile: names it in placements. */
export function profileDigest(profile: ActivationProfile): string {
  return sha256Hex(Buffer.from(canonicalJson(profile), 'utf8'));
}

/** The text of a profile file: canonical JSON and a line end. */
export function profileText(profile: ActivationProfile): string {
  return `${canonicalJson(profile)}\n`;
}

/**
 * Reads a profile, and checks that it holds together.
 * @throws InputError `bad-profile`, or as `parseJson` does
 */
export function parseProfile(source: string | Uint8Array, name: string): ActivationProfile {
  const refuse = (reason: string) =>
    new InputError('bad-profile', `Cannot use "${name}" as an activation profile: ${reason}`, { name });
  const parsed = activationProfileSchema.safeParse(parseJson(source, name));
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    throw refuse(`at "${issue.path.join('.')}": ${issue.message}`);
  }
  const profile = parsed.data;
  const ids = new Set<string>();
  for (const { id, counts, repeats } of profile.matrices) {
    if (ids.has(id)) throw refuse(`"${id}" comes twice`);
    ids.add(id);
    const neuron = counts.findIndex((uses) => uses > profile.tokens);
    if (neuron >= 0) {
      throw refuse(`neuron ${neuron} of "${id}" has ${counts[neuron]} uses in ${profile.tokens} tokens`);
    }
    const uses = counts.reduce((sum, value) => sum + value, 0);
    if (repeats > uses) throw refuse(`"${id}" has ${repeats} repeats in ${uses} uses`);
  }
  for (const { id, weights } of profile.guesser?.tables ?? []) {
    const neurons = profile.matrices.find((matrix) => matrix.id === id)?.counts.length;
    if (neurons !== undefined && weights.length === recordedLength(neurons)) continue;
    throw refuse(`the guess table of "${id}" is not one of its ${neurons ?? 0} neurons`);
  }
  const curve = coverageCurve(profile.matrices);
  if (canonicalJson(curve) !== canonicalJson(profile.coverage)) {
    throw refuse('its coverage curve does not follow from its counts');
  }
  return profile;
}

/**
 * Refuses a profile of other weights or of other matrices.
 * @throws InputError `profile-of-other-model`
 */
export function requireProfileOf(
  profile: ActivationProfile,
  model: { readonly sourceDigest: string; readonly neurons: ReadonlyMap<string, number> },
): void {
  if (profile.checkpoint !== model.sourceDigest) {
    throw new InputError(
      'profile-of-other-model',
      `Cannot use the activation profile: it was recorded with checkpoint ${profile.checkpoint}, this one is ${model.sourceDigest}`,
      { profile: profile.checkpoint, checkpoint: model.sourceDigest },
    );
  }
  for (const { id, counts } of profile.matrices) {
    const neurons = model.neurons.get(id);
    if (neurons === counts.length) continue;
    throw new InputError(
      'profile-of-other-model',
      `Cannot use the activation profile: it has ${counts.length} neurons for "${id}", the model has ${neurons ?? 0}`,
      { id },
    );
  }
}

/** Neurons of one matrix, those used most first; equal ones by their number. */
export function byUse(counts: readonly number[]): Uint32Array {
  return Uint32Array.from(counts.keys()).sort((a, b) => counts[b]! - counts[a]! || a - b);
}
