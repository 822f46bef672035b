import { type ActivationProfile, byUse } from './activation-profile.js';
import type { SurveyedMatrix } from './survey.js';

/** What `retention` keeps: the rows used last, so many a matrix; or those that a recorded profile shows used most. */
export type Retention =
  | { readonly kind: 'lru'; readonly rowsPerMatrix: number }
  | { readonly kind: 'hot'; readonly profile: ActivationProfile };

/** The forms of `--retain`. */
export const retainForms = 'lru:<rows a layer> or hot:auto';

/** Reads `--retain`: places of an LRU, or `hot` for a set that a profile is to choose; null where it is neither. */
export function parseRetain(text: string): { kind: 'lru'; rowsPerMatrix: number } | { kind: 'hot' } | null {
  if (text === 'hot:auto') return { kind: 'hot' };
  const rows = /^lru:([1-9]\d{0,8})$/.exec(text)?.[1];
  return rows === undefined ? null : { kind: 'lru', rowsPerMatrix: Number(rows) };
}

/** Rows a matrix that an LRU has places for. */
export function lruShares(
  fed: readonly SurveyedMatrix[],
  rowsPerMatrix: number,
): ReadonlyMap<SurveyedMatrix, number> {
  return new Map(fed.map((matrix) => [matrix, Math.min(rowsPerMatrix, matrix.rows)]));
}

/**
 * Fills bytes with the rows used most a byte, over all matrices; equal ones in forward order, then by number. Rows that
 * the profile has never seen used come last, so that spare bytes are used all the same.
 */
export class HotRanking {
  readonly #order: { readonly matrix: SurveyedMatrix; readonly uses: number }[];

  constructor(fed: readonly SurveyedMatrix[], profile: ActivationProfile) {
    const profiled = new Map(profile.matrices.map((matrix) => [matrix.id, matrix.counts]));
    this.#order = fed.flatMap((matrix) => {
      const counts = profiled.get(matrix.description.id) ?? new Array<number>(matrix.rows).fill(0);
      return Array.from(byUse(counts), (neuron) => ({ matrix, uses: counts[neuron]! }));
    });
    this.#order.sort((a, b) => b.uses * a.matrix.rowBytes - a.uses * b.matrix.rowBytes); // stable
  }

  /** Rows a matrix; the set itself is the first of each matrix by use. */
  shares(spareBytes: number): ReadonlyMap<SurveyedMatrix, number> {
    const shares = new Map<SurveyedMatrix, number>();
    let spare = spareBytes;
    for (const { matrix } of this.#order) {
      if (matrix.rowBytes > spare) break;
      spare -= matrix.rowBytes;
      shares.set(matrix, (shares.get(matrix) ?? 0) + 1);
    }
    return shares;
  }
}
