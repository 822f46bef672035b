// Two arms that read an OPT shape from disk, cold and warm, in turns.
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { loadNative } from '../../dist/backend/cpu/native-status.js';
import { parseByteSize } from '../../dist/base/byte-size.js';
import { makeWhereAbsent } from './checkpoint.mjs';
import { geometricMean, median } from './statistics.mjs';

/**
 * What such a benchmark runs on: its flags, a checkpoint made where it is absent, the library that drops pages from the cache.
 * Ends the process where there is none.
 */
export async function openDiskBench({ budget, ...more }) {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      model: { type: 'string', default: join(tmpdir(), 'waybill-bench-opt-1.3b') },
      budget: { type: 'string', default: budget },
      pairs: { type: 'string', default: '6' },
      tokens: { type: 'string', default: '6' },
      threads: { type: 'string', default: String(availableParallelism()) },
      ...more,
    },
  });
  const { library } = loadNative();
  if (library === null) {
    process.stderr.write(
      'Not run: cold reads need the native library, which alone can drop pages from the cache\n',
    );
    process.exit(0);
  }
  await makeWhereAbsent(values.model, values.shape);
  const tokens = Number(values.tokens);
  const pairs = Number(values.pairs);
  const threads = Number(values.threads);
  const budgetBytes = parseByteSize(values.budget);
  return {
    values,
    library,
    pairs,
    tokens,
    budgetBytes,
    prompt: Array.from({ length: 16 }, (_, index) => 5 + ((index * 37) % 50_000)),
    session: {
      model: values.model,
      backend: 'cpu',
      budgetBytes,
      threads,
      contextPositions: 64,
      prefillChunk: 16,
    },
    generation: { maxNewTokens: tokens + 1, ignoreEos: true },
    conditions: { processor: cpus()[0].model, threads, budgetBytes, pairs, tokens },
  };
}

/** Steps of new tokens in milliseconds; the first one still meets what prefill left in the cache. */
export function stepsOf({ times }) {
  return times.decodeStepNs.slice(1).map((ns) => Number(ns) / 1e6);
}

/** Results of trials in the order AB BA, which must agree in their digest, with the paired ratio of times a token. */
export async function inTurns([one, other], pairs, trial) {
  const results = { [one]: [], [other]: [] };
  for (let pair = 0; pair < pairs; pair++) {
    for (const policy of pair % 2 === 0 ? [one, other] : [other, one]) {
      results[policy].push(await trial(policy));
    }
  }
  const [a, b] = [results[one], results[other]];
  if (new Set([...a, ...b].map(({ digest }) => digest)).size !== 1)
    throw new Error('arms differ in a logits digest');
  const stepOf = ({ stepMs }) => median(stepMs);
  return {
    results: [a, b],
    regimes: [a[0].regime, b[0].regime],
    msPerToken: [median(a.map(stepOf)), median(b.map(stepOf))],
    pairedRatio: geometricMean(a.map((result, pair) => stepOf(result) / stepOf(b[pair]))),
    deviceBytes: [a, b].map((arm) => median(arm.map(({ deviceReadBytes }) => deviceReadBytes ?? 0))),
  };
}
