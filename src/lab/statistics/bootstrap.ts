import { philoxWords } from '../../base/philox.js';

/** Resamples above the size at which all of them are taken. */
export const seededResamples = 10_000;
/** Largest sample of which every resample is taken: 6^6 = 46,656. */
export const exhaustiveSize = 6;

export interface BootstrapInterval {
  readonly low: number;
  readonly high: number;
  readonly resamples: number;
  /** Every resample was taken; no seed was used. */
  readonly exhaustive: boolean;
}

/**
 * Percentile bootstrap interval of the mean: nearest-rank percentiles of the means of resamples with replacement. All
 * n^n of them up to n = 6, else 10,000 drawn by Philox from `seed` (word i of resample r picks value i).
 */
export function bootstrapMean(
  values: readonly number[],
  confidence: number,
  seed: number,
): BootstrapInterval {
  const count = values.length;
  if (count === 0) throw new RangeError('Cannot resample 0 values: want at least 1');
  const exhaustive = count <= exhaustiveSize;
  const means = exhaustive ? allMeans(values) : drawnMeans(values, seed);
  means.sort();
  const tail = (1 - confidence) / 2;
  // The small term keeps products that are whole numbers, such as 0.025 x 10,000, from being rounded up.
  const lowRank = Math.max(1, Math.ceil(tail * means.length - 1e-9));
  const highRank = Math.max(1, Math.ceil((1 - tail) * means.length - 1e-9));
  return { low: means[lowRank - 1]!, high: means[highRank - 1]!, resamples: means.length, exhaustive };
}

function allMeans(values: readonly number[]): Float64Array {
  const count = values.length;
  const means = new Float64Array(count ** count);
  for (let index = 0; index < means.length; index++) {
    let rest = index;
    let sum = 0;
    for (let place = 0; place < count; place++) {
      sum += values[rest % count]!;
      rest = Math.floor(rest / count);
    }
    means[index] = sum / count;
  }
  return means;
}

function drawnMeans(values: readonly number[], seed: number): Float64Array {
  const count = values.length;
  const means = new Float64Array(seededResamples);
  for (let resample = 0; resample < seededResamples; resample++) {
    let sum = 0;
    for (let begin = 0; begin < count; begin += 4) {
      const words = philoxWords(seed, resample, begin / 4);
      for (let word = 0; word < 4 && begin + word < count; word++) {
        sum += values[Math.floor((words[word]! / 2 ** 32) * count)]!;
      }
    }
    means[resample] = sum / count;
  }
  return means;
}
