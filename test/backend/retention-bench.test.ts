import { expect, test } from 'vitest';
import { withHostTier } from '../acquire/support/host-tier-oracle.js';
import { benchRetention } from '../cuda/retention-bench.js';

test('the benchmark of ways for rows to come runs all of them, to the same digests', async () => {
  const lines: string[] = [];
  const { times, failures } = await benchRetention(
    {
      shape: { layers: 2, hidden: 32, ffn: 512, heads: 2, vocabulary: 300, positions: 64 },
      budgetBytes: 220_000,
      promptTokens: 12,
      tokens: 6,
      rounds: 2,
      usages: [
        { exponent: 1, positionShare: 0.55 },
        { exponent: 0.5, positionShare: 0.2 },
      ],
      everyArm: true,
      arms: [],
      open: withHostTier,
    },
    (line) => lines.push(line),
  );
  expect(failures, lines.join('\n')).toEqual([]);
  expect(times.map(({ arm }) => arm)).toEqual([
    'packets, none kept',
    'resident',
    'resident-sparse',
    'packets',
    'lru:1024',
    'hot:auto',
    'forecast early',
    'forecast late',
    'extents',
    'staged',
    'stream',
    'packets, none kept',
    'lru:1024',
    'hot:auto',
  ]);
  const [none] = times;
  const of = (name: string) => times.find(({ arm }) => arm === name)!;
  const demanded = none!.rows['packet-rows']!;
  expect(demanded).toBeGreaterThan(0);
  for (const name of ['lru:1024', 'hot:auto']) {
    const { rows } = of(name);
    expect((rows['retention-hits'] ?? 0) + (rows['retention-misses'] ?? 0)).toBeCloseTo(demanded, 9);
    expect(rows['retention-hits']).toBeGreaterThan(0);
  }
  expect(of('forecast late').rows).toEqual(of('forecast early').rows);
}, 120_000);
