import { join } from 'node:path';
import { readFolder } from '../checkpoint/low-bit-folder.js';
import { lowBitDirectory } from '../checkpoint/low-bit-model.js';
import type { LowBitPlan } from '../checkpoint/low-bit-plan.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import type { SessionOptions } from './session-options.js';

/** Why policy `auto` must not choose to certify; null where it may, and opening then writes nothing. */
export async function whyUncertified(
  { numerics }: SessionOptions,
  prepared: PreparedModel,
  { name, choices }: LowBitPlan,
): Promise<string | null> {
  if (numerics === 'native') return 'certificates hold for portable numerics alone';
  if (choices.size === 0) return 'no first projection can be certified';
  const root = join(prepared.directory, lowBitDirectory);
  const found = await Promise.all([readFolder(join(root, 'rows')), readFolder(join(root, name))]);
  if (found.every((manifest) => manifest?.prepared === prepared.manifestDigest)) return null;
  return `the low-bit copies "${name}" are not written ("waybill prepare --low-bit ${name}" writes them)`;
}
