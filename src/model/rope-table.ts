import { createHash } from 'node:crypto';
import { cos64, sin64 } from '../base/binary64.js';
import { littleEndianBytes } from '../base/digest.js';
import { UsageError } from '../base/errors.js';
import type { LlamaConfig } from '../checkpoint/model-config.js';
import { inverseFrequencies, rotationScale } from './rope-frequencies.js';

/** Rotations of every position, in binary32. */
export interface RopeTable {
  readonly cosines: Float32Array; // [positions, rotary / 2]
  readonly sines: Float32Array; // [positions, rotary / 2]
  /** SHA-256 over the little-endian bytes of the cosines, then of the sines. */
  readonly digest: string;
}

const largestPositions = 2 ** 20;

/**
 * Cosines and sines of `position * inverse frequency`, times YaRN's attention factor, computed in binary64 by
 * base/binary64.ts alone and rounded to binary32 once, so that every machine has the same table. A row does not
 * depend on how many rows there are. docs/rotary-positions.md has every step.
 *
 * @throws UsageError `too-many-positions` beyond 2^20, where the reduction of angles ends
 */
export function ropeTable(config: LlamaConfig, positions: number): RopeTable {
  if (positions > largestPositions) {
    throw new UsageError(
      'too-many-positions',
      `Cannot compute rotary positions up to ${positions}: at most ${largestPositions} are supported`,
      { positions, largestPositions },
    );
  }
  const pairs = config.rotary / 2;
  const scale = rotationScale(config.ropeScaling);
  const cosines = new Float32Array(positions * pairs);
  const sines = new Float32Array(positions * pairs);
  const perPosition = config.ropeScaling.type === 'dynamic';
  let frequencies = inverseFrequencies(config, 0);
  for (let position = 0; position < positions; position++) {
    if (perPosition) frequencies = inverseFrequencies(config, position);
    for (let pair = 0; pair < pairs; pair++) {
      const angle = position * frequencies[pair]!;
      cosines[position * pairs + pair] = cos64(angle) * scale;
      sines[position * pairs + pair] = sin64(angle) * scale;
    }
  }
  const digest = createHash('sha256')
    .update(littleEndianBytes(cosines))
    .update(littleEndianBytes(sines))
    .digest('hex');
  return { cosines, sines, digest };
}
