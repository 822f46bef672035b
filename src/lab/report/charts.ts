import * as Plot from '@observablehq/plot';
import { chartWidth, fills, plotSvg } from './plot-svg.js';

/** Ratios of pairs, what they average to, and what identical arms gave. */
export interface PairPlot {
  /** In block order; order effects removed. */
  readonly ratios: readonly number[];
  readonly ratio: number | null;
  readonly interval: { readonly low: number; readonly high: number } | null;
  readonly noise: { readonly low: number; readonly high: number } | null;
  /** The gate's bound, where there is one. */
  readonly bound: number | null;
}

/** One dot a pair, from top to bottom in the order in which they ran, on a logarithmic scale around 1. */
export function pairPlot({ ratios, ratio, interval, noise, bound }: PairPlot): string {
  const ends = [
    1,
    ...ratios,
    ...[interval, noise].flatMap((range) => (range === null ? [] : [range.low, range.high])),
    ...(bound === null ? [] : [bound]),
  ];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = Math.max((high / low) ** 0.06, 1.005);
  const rows = [0.4, ratios.length + 0.6];
  const band = (range: PairPlot['interval'], opacity: number, fill: string) =>
    range === null
      ? []
      : [
          Plot.rectX([range], {
            x1: log(range.low),
            x2: log(range.high),
            y1: rows[0]!,
            y2: rows[1]!,
            fill,
            fillOpacity: opacity,
          }),
        ];
  return plotSvg({
    height: Math.min(420, 90 + 14 * ratios.length),
    marginLeft: 44,
    marginBottom: 44,
    x: {
      domain: [log(low / margin), log(high * margin)],
      label: 'ratio of the pair (logarithmic)',
      labelAnchor: 'center',
      labelArrow: 'none',
      ticks: ratioTicks(low / margin, high * margin).map(log),
      tickFormat: (value: number) => String(Number(Math.exp(value).toPrecision(6))),
    },
    y: {
      domain: [rows[1]!, rows[0]!],
      label: 'pair',
      labelArrow: 'none',
      ticks: pairTicks(ratios.length),
      tickFormat: 'd',
    },
    marks: [
      ...band(noise, 0.25, fills[5]!),
      ...band(interval, 0.3, fills[0]!),
      Plot.ruleX([0], { stroke: 'currentColor', strokeWidth: 1 }),
      ...(bound === null
        ? []
        : [Plot.ruleX([log(bound)], { stroke: fills[1]!, strokeDasharray: '5 3', strokeWidth: 2 })]),
      ...(ratio === null ? [] : [Plot.ruleX([log(ratio)], { stroke: fills[0]!, strokeWidth: 2 })]),
      Plot.dot(
        ratios.map((ratio, index) => ({ value: log(ratio), pair: index + 1 })),
        { x: 'value', y: 'pair', r: 3.5, fill: 'currentColor' },
      ),
    ],
  });
}

/** Four decimals of a pixel do not show; rounding makes the same bytes of libraries that differ in the last bit. */
const log = (ratio: number): number => Number(Math.log(ratio).toPrecision(12));

/** At most six ticks that have few digits. */
function ratioTicks(low: number, high: number): number[] {
  for (const step of [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]) {
    const first = Math.ceil(low / step);
    const last = Math.floor(high / step);
    if (last - first < 6) {
      const ticks = Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
      const positive = ticks.filter((tick) => tick > 0).map((tick) => Number(tick.toPrecision(6)));
      if (positive.length > 1) return positive;
    }
  }
  const powers = Array.from({ length: 21 }, (_, index) => 10 ** (index - 10));
  return powers.filter((power) => power >= low && power <= high);
}

function pairTicks(count: number): number[] {
  const step = Math.max(1, Math.ceil(count / 10));
  return Array.from({ length: Math.floor(count / step) }, (_, index) => (index + 1) * step);
}

/** Parts of a whole, a bar an arm. */
export interface StackedBars {
  readonly unit: string;
  readonly bars: readonly {
    readonly arm: string;
    readonly parts: readonly { readonly name: string; readonly value: number }[];
  }[];
}

/** Horizontal bars with a legend of their own under them: the colours alone say nothing that the legend does not. */
export function stackedBars({ unit, bars }: StackedBars): string {
  const names = [...new Set(bars.flatMap(({ parts }) => parts.map(({ name }) => name)))];
  const values = bars.flatMap(({ arm, parts }) => parts.map(({ name, value }) => ({ arm, name, value })));
  const legend = names.map((name, index) => ({ name, column: index % 2, row: Math.floor(index / 2) }));
  const longest = Math.max(4, ...bars.map(({ arm }) => arm.length));
  const barsHeight = 34 * bars.length;
  const height = barsHeight + 60 + 18 * Math.ceil(names.length / 2);
  const left = Math.min(150, 12 + 7 * longest);
  return plotSvg({
    height,
    marginLeft: left,
    marginBottom: height - barsHeight - 10,
    marginTop: 10,
    x: { label: unit, labelAnchor: 'center', labelArrow: 'none', ticks: 4, nice: true, labelOffset: 34 },
    y: {
      domain: bars.map(({ arm }) => arm),
      label: null,
      padding: 0.3,
      tickFormat: (arm: string) => shortened(arm),
    },
    color: { domain: names, range: names.map((_, index) => fills[index % fills.length]!) },
    marks: [
      Plot.barX(values, { x: 'value', y: 'arm', fill: 'name', stroke: 'currentColor', strokeWidth: 0.5 }),
      Plot.ruleX([0]),
      ...legend.flatMap(({ name, column, row }) => {
        const at = {
          frameAnchor: 'bottom-left' as const,
          dx: column * ((chartWidth - 20) / 2) - left + 14,
          dy: 56 + 18 * row,
        };
        return [
          Plot.dot([name], {
            ...at,
            symbol: 'square',
            r: 5,
            fill: () => name,
            stroke: 'currentColor',
            strokeWidth: 0.5,
          }),
          Plot.text([name], {
            ...at,
            dx: at.dx + 10,
            text: () => shortened(name, 26),
            textAnchor: 'start',
            lineAnchor: 'middle',
          }),
        ];
      }),
    ],
  });
}

/** Values over time, a line a series. */
export interface Lines {
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly {
    readonly name: string;
    readonly points: readonly { readonly x: number; readonly y: number }[];
  }[];
}

const dashes = ['none', '6 3', '2 3', '8 3 2 3'];

/** Series differ in dashes as well as in colour, and are named in a legend under the plot. */
export function lines({ xLabel, yLabel, series }: Lines): string {
  const height = 250 + 18 * Math.ceil(series.length / 2);
  return plotSvg({
    height,
    marginLeft: 58,
    marginBottom: height - 190,
    x: { label: xLabel, labelAnchor: 'center', labelArrow: 'none', ticks: 5, labelOffset: 36 },
    y: { label: yLabel, labelArrow: 'none', zero: true, nice: true, ticks: 5 },
    marks: [
      Plot.ruleY([0]),
      ...series.flatMap(({ name, points }, index) => {
        const stroke = fills[index % fills.length]!;
        const strokeDasharray = dashes[index % dashes.length]!;
        const at = {
          frameAnchor: 'bottom-left' as const,
          dx: (index % 2) * ((chartWidth - 20) / 2) - 58 + 14,
          dy: 58 + 18 * Math.floor(index / 2),
        };
        return [
          Plot.lineY(points, { x: 'x', y: 'y', stroke, strokeDasharray, strokeWidth: 2 }),
          Plot.dot(points.length < 40 ? points : [], { x: 'x', y: 'y', r: 2, fill: stroke }),
          Plot.text([name], {
            ...at,
            text: () => '━━',
            fill: stroke,
            textAnchor: 'start',
            lineAnchor: 'middle',
          }),
          Plot.text([name], {
            ...at,
            dx: at.dx + 32,
            text: () => shortened(name, 24),
            textAnchor: 'start',
            lineAnchor: 'middle',
          }),
        ];
      }),
    ],
  });
}

function shortened(text: string, most = 20): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
