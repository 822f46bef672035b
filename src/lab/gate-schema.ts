import { z } from 'zod';
import { metricNames } from './metric-names.js';

const arm = z.string().min(1);
const metric = z.enum(metricNames);
const title = z.string().trim().min(1).max(200);
/** Bounds are decimal strings: integers compare exactly, whatever their size. */
const integerBound = z.string().regex(/^(0|[1-9]\d{0,29})$/, 'a decimal integer in quotes');
const ratioBound = z
  .string()
  .regex(/^(0|[1-9]\d{0,5})\.\d{1,9}$/, 'a decimal fraction in quotes, such as "1.00"');
const shareBound = z.string().regex(/^(0\.\d{1,9}|1\.0{1,9})$/, 'a share in quotes, such as "0.95"');

export const gateFamilies = [
  'faithfulness',
  'resources',
  'capacity',
  'acquisition',
  'runtime',
  'useful-latency',
] as const;
export type GateFamily = (typeof gateFamilies)[number];

/** How the values of an arm's measured trials become one: all of them must hold, or a nearest-rank percentile. */
export const statisticNames = ['each', 'median', 'p90', 'p95', 'p99'] as const;
export type StatisticName = (typeof statisticNames)[number];

/**
 * A named predicate in positive form. Its verdict is over recomputed metrics; what is missing is never passed.
 */
export const gateSchema = z.discriminatedUnion('check', [
  /** Every trial of these arms gave the logits of its item's reference (or of one another), to the last bit. */
  z.strictObject({
    name: title,
    family: z.literal('faithfulness'),
    check: z.literal('bit-equal'),
    arms: z.array(arm).min(1),
  }),
  /** The same for the chosen tokens alone. */
  z.strictObject({
    name: title,
    family: z.literal('faithfulness'),
    check: z.literal('tokens-equal'),
    arms: z.array(arm).min(1),
  }),
  /** Share of new tokens, position by position, at which two arms chose the same id >= bound; across precisions. */
  z.strictObject({
    name: title,
    family: z.literal('faithfulness'),
    check: z.literal('token-parity'),
    arm,
    against: arm,
    bound: shareBound,
  }),
  /**
   * Relative L2 distance of the logits of `arm` from those of `against` <= bound at every position that both reached by
   * the same tokens.
   */
  z.strictObject({
    name: title,
    family: z.literal('faithfulness'),
    check: z.literal('relative-l2-at-most'),
    arm,
    against: arm,
    bound: ratioBound,
  }),
  /** metric <= bound. */
  z.strictObject({
    name: title,
    family: z.enum(['capacity', 'acquisition', 'resources', 'useful-latency']),
    check: z.literal('at-most'),
    arm,
    metric,
    statistic: z.enum(statisticNames),
    bound: integerBound,
  }),
  /** metric >= bound, for claims such as "the whole model does not fit the allowance". */
  z.strictObject({
    name: title,
    family: z.enum(['capacity', 'acquisition', 'resources']),
    check: z.literal('at-least'),
    arm,
    metric,
    statistic: z.enum(statisticNames),
    bound: integerBound,
  }),
  /** Sum of metric over new tokens <= bound. */
  z.strictObject({
    name: title,
    family: z.enum(['acquisition', 'resources']),
    check: z.literal('per-token-at-most'),
    arm,
    metric,
    bound: integerBound,
  }),
  /** Sum of metric over the blocks <= bound x the sum of `of`; the bound is an exact fraction. */
  z.strictObject({
    name: title,
    family: z.enum(['acquisition', 'resources', 'capacity']),
    check: z.literal('share-at-most'),
    arm,
    of: arm,
    metric,
    bound: ratioBound,
  }),
  /** The paired ratio arm / against lies below the bound, with its whole interval. */
  z.strictObject({
    name: title,
    family: z.literal('runtime'),
    check: z.literal('ratio-at-most'),
    arm,
    against: arm,
    metric,
    bound: ratioBound,
    confidence: z.number().gt(0.5).lt(1),
  }),
  /** Every trial of the schedule was completed. */
  z.strictObject({ name: title, family: z.literal('resources'), check: z.literal('complete') }),
  /** When the run ended nothing was held, no child process and no scratch file was left. */
  z.strictObject({ name: title, family: z.literal('resources'), check: z.literal('clean-end') }),
]);
export type Gate = z.infer<typeof gateSchema>;
