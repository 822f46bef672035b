import { readFile } from 'node:fs/promises';
import { InputError } from '../base/errors.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type ActivationProfile, parseProfile, requireProfileOf } from './activation-profile.js';

/**
 * Reads a recorded activation profile and checks that it is of this model.
 * @throws InputError `profile-unreadable`, `bad-profile`, `profile-of-other-model`, or as `parseJson` does
 */
export async function readProfile(path: string, prepared: PreparedModel): Promise<ActivationProfile> {
  const profile = parseProfile(await bytesOf(path), path);
  const { sourceDigest, description } = prepared;
  const neurons = new Map(
    description.matrices
      .filter(({ neuronAxis }) => neuronAxis !== null)
      .map(({ id, neuronAxis, inputs, outputs }) => [id, neuronAxis === 'inputs' ? inputs : outputs]),
  );
  requireProfileOf(profile, { sourceDigest, neurons });
  return profile;
}

async function bytesOf(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new InputError(
      'profile-unreadable',
      `Cannot read the activation profile "${path}": ${reason}`,
      { path },
      { cause },
    );
  }
}
