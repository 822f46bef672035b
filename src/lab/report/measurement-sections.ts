import { armValues } from '../comparison.js';
import { countedTrials, type JudgedPart } from '../lab-receipt.js';
import type { MetricName } from '../metric-names.js';
import { trialMetric } from '../metrics.js';
import { allArms } from '../protocol-schema.js';
import { ascending, nearestRank, percentileName } from '../statistics/percentile.js';
import { lines, stackedBars } from './charts.js';
import type { Block } from './document.js';
import { bytesText, metricText, timeText } from './figures.js';

/** What the protocol shows of each arm. */
export function metricSection({ part, selection }: JudgedPart): Block[] {
  const { protocol } = part.protocol;
  const rows = protocol.metrics.flatMap((metric) =>
    allArms(protocol).map(({ name }) => {
      const values = armValues(selection, name, metric);
      const known = ascending(values.filter((value) => value !== null));
      const text = (value: bigint | undefined): string =>
        value === undefined ? 'unmeasured' : metricText(metric, value);
      const tail = nearestRank(known, 95);
      return [
        `${metric}: ${name}`,
        `${known.length} of ${values.length}`,
        text(nearestRank(known, 50)?.value),
        text(known[0]),
        text(known.at(-1)),
        tail === null ? 'unmeasured' : `${metricText(metric, tail.value)} (${percentileName(95, tail)})`,
      ];
    }),
  );
  return [
    { kind: 'heading', level: 2, text: 'Measurements' },
    {
      kind: 'table',
      caption: 'Metrics by arm, over the trials that count; percentiles are nearest-rank',
      head: ['Metric and arm', 'Trials', 'Median', 'Least', 'Most', 'Tail'],
      figures: [1, 2, 3, 4, 5],
      rows,
    },
  ];
}

/** Bytes moved by cause, a new token, by arm. */
export function bytesSection({ part, selection }: JudgedPart): Block[] {
  const arms = allArms(part.protocol.protocol).flatMap(({ name }) => {
    const trials = countedTrials(selection, name);
    const tokens = total(trials.map((trial) => trialMetric(trial, 'new-tokens')));
    if (tokens === null || tokens === 0n || trials.some(({ bytes }) => bytes.moved === null)) return [];
    const causes = [...new Set(trials.flatMap(({ bytes }) => Object.keys(bytes.moved ?? {})))].sort();
    const sums = causes.map((cause) => {
      const sum = trials.reduce((all, { bytes }) => all + BigInt(bytes.moved?.[cause] ?? '0'), 0n);
      return [cause, Number(sum) / Number(tokens)] as const;
    });
    return [{ arm: name, sums }];
  });
  const heading = { kind: 'heading', level: 2, text: 'Bytes by cause' } as const;
  if (arms.length === 0)
    return [heading, { kind: 'paragraph', text: 'No arm recorded the bytes that it moved.' }];
  const causes = [
    ...new Set(arms.flatMap(({ sums }) => sums.flatMap(([cause, sum]) => (sum > 0 ? [cause] : [])))),
  ];
  const unit = byteUnit(Math.max(1, ...arms.map(({ sums }) => sums.reduce((all, [, sum]) => all + sum, 0))));
  const perToken = (value: number): string => bytesText(BigInt(Math.round(value)));
  const told = arms.map(({ arm, sums }) => `${arm} ${perToken(sums.reduce((all, [, sum]) => all + sum, 0))}`);
  return [
    heading,
    {
      kind: 'chart',
      title: 'Bytes moved a new token, by arm and cause',
      description: `In all ${told.join(', ')} a new token; the table has each cause.`,
      svg: stackedBars({
        unit: `${unit.name} a new token`,
        bars: arms.map(({ arm, sums }) => ({
          arm,
          parts: causes.map((name) => ({
            name,
            value: (sums.find(([cause]) => cause === name)?.[1] ?? 0) / unit.size,
          })),
        })),
      }),
    },
    {
      kind: 'table',
      caption: 'Bytes moved a new token',
      head: ['Cause', ...arms.map(({ arm }) => arm)],
      figures: arms.map((_, index) => index + 1),
      rows: causes.map((name) => [
        name,
        ...arms.map(({ sums }) => perToken(sums.find(([cause]) => cause === name)?.[1] ?? 0)),
      ]),
    },
  ];
}

/** Samples of the first measured trial of each arm. */
export function memorySection({ part, selection }: JudgedPart): Block[] {
  const heading = { kind: 'heading', level: 2, text: 'Memory over time' } as const;
  const trials = part.protocol.protocol.arms.flatMap(({ name }) => {
    const trial = countedTrials(selection, name)[0];
    return trial === undefined || trial.samples.length === 0 ? [] : [{ name, samples: trial.samples }];
  });
  const kinds = [
    ['held', 'heldBytes'],
    ['process', 'residentSetBytes'],
    ['device', 'deviceUsedBytes'],
  ] as const;
  const all = trials.flatMap(({ name, samples }) =>
    kinds.flatMap(([label, field]) => {
      const points = samples.flatMap((sample) =>
        sample[field] === null
          ? []
          : [{ x: Number(sample.elapsedNs) / 1e6, y: Number(sample[field]) / 2 ** 20 }],
      );
      return points.length === 0 ? [] : [{ name: `${name}, ${label}`, points }];
    }),
  );
  if (all.length === 0) return [heading, { kind: 'paragraph', text: 'No arm recorded samples of memory.' }];
  const told = all.map(
    ({ name, points }) => `${name} at most ${Math.max(...points.map(({ y }) => y)).toFixed(1)} MiB`,
  );
  return [
    heading,
    {
      kind: 'chart',
      title: 'Memory during the first measured trial of each arm',
      description: `${told.join('; ')}. "Held" is what the budget bounds, "process" the whole resident set.`,
      svg: lines({ xLabel: 'ms since the trial began', yLabel: 'MiB', series: all }),
    },
  ];
}

const phases: readonly (readonly [label: string, metric: MetricName])[] = [
  ['prefill', 'prefill-ns'],
  ['decode passes', 'decode-call-ns'],
  ['outside passes', 'outside-call-ns'],
];

/** Where the episodes' time went: means, because they add up to the mean episode. */
export function phaseSection({ part, selection }: JudgedPart): Block[] {
  const heading = { kind: 'heading', level: 2, text: 'Time by phase' } as const;
  const arms = part.protocol.protocol.arms.flatMap(({ name }) => {
    const means = phases.map(([label, metric]) => {
      const values = armValues(selection, name, metric);
      const sum = total(values);
      return [label, sum === null ? null : sum / BigInt(values.length)] as const;
    });
    return means.some(([, mean]) => mean === null) ? [] : [{ arm: name, means: means as [string, bigint][] }];
  });
  if (arms.length === 0) return [heading, { kind: 'paragraph', text: 'No arm recorded its phases.' }];
  const told = arms.map(
    ({ arm, means }) => `${arm} ${means.map(([label, mean]) => `${label} ${timeText(mean)}`).join(', ')}`,
  );
  return [
    heading,
    {
      kind: 'chart',
      title: 'Mean time of an episode, by arm and phase',
      description: `${told.join('; ')}.`,
      svg: stackedBars({
        unit: 'ms an episode',
        bars: arms.map(({ arm, means }) => ({
          arm,
          parts: means.map(([name, mean]) => ({ name, value: Number(mean) / 1e6 })),
        })),
      }),
    },
  ];
}

const resources: readonly (readonly [label: string, metric: MetricName])[] = [
  ['Planned', 'planned-bytes'],
  ['Peak held (what the budget bounds)', 'peak-held-bytes'],
  ['Peak resident set of the process', 'peak-resident-set-bytes'],
  ['Peak on the device', 'peak-device-used-bytes'],
  ['Peak pinned', 'peak-pinned-bytes'],
  ['Moved while setting up', 'setup-moved-bytes'],
  ['Read from block devices', 'device-read-bytes'],
  ['Setup', 'setup-ns'],
  ['Recording, time', 'recording-ns'],
  ['Recording, bytes', 'recording-bytes'],
];

/** The largest of each resource over all trials that ran: a warm-up sets up for those that count. */
export function resourceSection({ part }: JudgedPart): Block[] {
  const trials = part.records.filter((record) => record.kind === 'trial');
  const arms = allArms(part.protocol.protocol).map(({ name }) => name);
  return [
    { kind: 'heading', level: 2, text: 'Resources charged' },
    {
      kind: 'table',
      caption: 'The most that a trial of each arm took, warm-ups too',
      head: ['Resource', ...arms],
      figures: arms.map((_, index) => index + 1),
      rows: resources.map(([label, metric]) => [
        label,
        ...arms.map((arm) => {
          const own = trials.filter(({ slot }) => slot.arm === arm);
          const values = own.map((record) => trialMetric(record, metric));
          const known = ascending(values.filter((value) => value !== null));
          const most = known.at(-1);
          return most === undefined ? 'unmeasured' : metricText(metric, most);
        }),
      ]),
    },
  ];
}

function total(values: readonly (bigint | null)[]): bigint | null {
  if (values.length === 0 || values.includes(null)) return null;
  return values.reduce<bigint>((sum, value) => sum + value!, 0n);
}

function byteUnit(largest: number): { name: string; size: number } {
  if (largest >= 2 ** 30) return { name: 'GiB', size: 2 ** 30 };
  if (largest >= 2 ** 20) return { name: 'MiB', size: 2 ** 20 };
  return largest >= 2 ** 10 ? { name: 'KiB', size: 2 ** 10 } : { name: 'bytes', size: 1 };
}
