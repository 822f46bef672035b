import type { JudgedArchive } from '../lab-receipt.js';
import { pairPlot } from './charts.js';
import { type Comparison, comparisonsOf } from './comparisons.js';
import type { Block, Table } from './document.js';
import { intervalText, percentText, ratioText } from './figures.js';

/** Question and verdict, a gate a row. */
export function verdictSection({ run }: JudgedArchive): Block[] {
  const { evaluation, part, selection } = run;
  const { gates } = evaluation;
  const passed = gates.filter(({ verdict }) => verdict === 'pass').length;
  const summary =
    part.manifest.variant === 'aa'
      ? 'This is an A/A run: every arm ran as the first one does. It measures noise and qualifies nothing.'
      : `${passed} of ${gates.length} gates pass. The run ${statusText(selection.status)}.`;
  return [
    { kind: 'verdict', verdict: evaluation.verdict, text: summary },
    { kind: 'heading', level: 2, text: 'Question' },
    { kind: 'paragraph', text: part.protocol.protocol.question },
    { kind: 'heading', level: 2, text: 'Verdicts' },
    ...(gates.length === 0
      ? [{ kind: 'paragraph', text: 'An A/A run has no gates.' } as const]
      : [
          {
            kind: 'table',
            caption: 'Each gate, judged from the raw records; none waives another',
            head: ['Gate', 'Family', 'Verdict', 'Reason'],
            rows: gates.map(({ name, family, verdict, reason }) => [name, family, { verdict }, reason]),
          } as const,
        ]),
  ];
}

export function statusText(status: JudgedArchive['run']['selection']['status']): string {
  if (status === 'killed') return 'was killed: nothing says how it ended';
  return status === 'different'
    ? 'stopped at the first difference'
    : `${status === 'completed' ? 'was' : 'is'} ${status}`;
}

/** Effects with interval and noise floor, and a plot of the pairs of each. */
export function effectSection(archive: JudgedArchive): Block[] {
  const comparisons = comparisonsOf(archive);
  const heading = { kind: 'heading', level: 2, text: 'Effects' } as const;
  if (comparisons.length === 0) {
    return [heading, { kind: 'paragraph', text: 'The protocol compares no times between arms.' }];
  }
  return [
    heading,
    effectTable(comparisons, archive.noise !== null),
    ...plotted(comparisons).flatMap(pairFigure),
  ];
}

/** Those that a gate judges; where none does, the first of the protocol. */
function plotted(comparisons: readonly Comparison[]): readonly Comparison[] {
  const gated = comparisons.filter(({ bound }) => bound !== null);
  return gated.length > 0 ? gated : comparisons.slice(0, 1);
}

/** Each warning once, with the comparisons that it limits where those are not all. */
function footnotes(comparisons: readonly Comparison[]): string[] {
  const limited = new Map<string, string[]>();
  for (const { arm, against, metric, effect } of comparisons) {
    for (const { text } of effect.warnings) {
      limited.set(text, [...(limited.get(text) ?? []), `${metric}, ${arm} / ${against}`]);
    }
  }
  return [...limited].map(([text, names]) => {
    const whose = names.length === comparisons.length ? 'All comparisons' : names.join('; ');
    return `${whose}: ${text}.`;
  });
}

function effectTable(comparisons: readonly Comparison[], hasNoise: boolean): Table {
  return {
    kind: 'table',
    caption: 'Paired ratios: below 1 the first arm takes less. The unit of inference is the pair',
    head: [
      'Comparison',
      'Pairs',
      'Geometric mean ratio',
      'Interval (Student t)',
      'Bootstrap interval',
      'Noise floor (A/A)',
      'Ratio of medians',
    ],
    figures: [1, 2, 3, 4, 5, 6],
    rows: comparisons.map(({ arm, against, metric, effect, noise }) => [
      `${metric}: ${arm} / ${against}`,
      String(effect.pairs),
      effect.ratio === null ? 'none' : ratioText(effect.ratio),
      effect.interval === null
        ? 'none'
        : `${intervalText(effect.interval)} (${percentText(effect.interval.confidence)})`,
      effect.bootstrap === null ? 'none' : intervalText(effect.bootstrap),
      noise === null
        ? 'not measured'
        : `±${percentText(noise.share)} (${intervalText(noise)}, ${noise.pairs} pairs)`,
      effect.ratioOfMedians === null ? 'none' : ratioText(effect.ratioOfMedians),
    ]),
    footnotes: [
      ...(hasNoise
        ? []
        : ['No A/A run is in this archive, so nothing says how large an effect of identical arms is.']),
      'The geometric mean of paired ratios and the ratio of medians are different numbers.',
      ...footnotes(comparisons),
    ],
  };
}

function pairFigure({ arm, against, metric, effect, bound, noise }: Comparison): Block[] {
  if (effect.ratio === null || effect.logRatios.length === 0) return [];
  const ratios = effect.logRatios.map((log) => Math.exp(log));
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)];
  const parts = [
    `${ratios.length} pairs from ${ratioText(least)} to ${ratioText(most)}; the blue line is their geometric mean ${ratioText(effect.ratio)}`,
    effect.interval === null ? null : `the blue band its interval ${intervalText(effect.interval)}`,
    noise === null ? null : `the grey band what identical arms gave, ${intervalText(noise)}`,
    bound === null ? null : `the dashed line the bound ${bound}`,
    `the thin line is 1, no difference`,
  ];
  return [
    {
      kind: 'chart',
      title: `${metric} of ${arm} divided by that of ${against}, by pair`,
      description: `${parts.filter((part) => part !== null).join('; ')}.`,
      svg: pairPlot({ ratios, ratio: effect.ratio, interval: effect.interval, noise, bound }),
    },
  ];
}
