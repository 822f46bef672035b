import type { ArmPlan } from './shape-arm.js';
import type { ShapeModel } from './shape-model.js';

const mebibyte = 1024 * 1024;

/** Of neurons, in OPT-2.7B on English text. */
export const usualShare = 0.034;

/** All first projections have certificates there and none has to be streamed for a new token. */
export const certifiedName = 'certified 3600 MiB';

/** Arms that are open together and take turns. */
export interface ShapeGroup {
  readonly arms: readonly ArmPlan[];
  /** Shares of active neurons, one after another; arms that do not sweep run at the first alone. */
  readonly shares: readonly number[];
  /** Opened in native numerics: its digests agree with one another alone. */
  readonly native: boolean;
  /** Rivals and the CPU run beside. */
  readonly compared: boolean;
}

/** What is measured of a shape, and what arms are worth it; `arms`: names that they begin with, none for all. */
export interface GroupOptions {
  readonly budgets: readonly number[];
  readonly shares: readonly number[];
  readonly arms: readonly string[];
  readonly native: boolean;
}

/**
 * Groups of a shape. 2.7B without budgets: the arms whose aims are stated. Else budgets as shares of the weights, one group
 * each, so that few models lie on the GPU at once; the first group is the largest, and has the arms without a budget.
 */
export function groupsOf(model: ShapeModel, options: GroupOptions): ShapeGroup[] {
  const { budgets, shares, native } = options;
  const groups: ShapeGroup[] = [];
  const plain = { native: false, compared: false };
  if (model.name === '2.7b' && budgets.length === 0) {
    groups.push({ ...plain, arms: usualArms, shares: [usualShare], compared: true });
    if (native) groups.push({ ...plain, arms: nativeArms, shares: [usualShare], native: true });
    if (shares.length > 0) groups.push({ ...plain, arms: sweptArms, shares });
  } else {
    const descending = [...(budgets.length === 0 ? [0.4, 0.6, 0.8] : budgets)].sort((a, b) => b - a);
    for (const [index, share] of descending.entries()) {
      const arms = [...(index === 0 ? unbounded : []), ...boundedArms(model, share)];
      groups.push({ ...plain, arms, shares: [usualShare, ...shares] });
    }
  }
  const wanted = ({ name }: ArmPlan) =>
    options.arms.length === 0 || options.arms.some((start) => name === start || name.startsWith(`${start} `));
  return groups
    .map((group) => ({ ...group, arms: group.arms.filter(wanted) }))
    .filter(({ arms }) => arms.length > 0);
}

const unbounded: readonly ArmPlan[] = [
  { name: 'resident', policy: 'resident', budget: Infinity },
  { name: 'resident-sparse', policy: 'resident-sparse', budget: Infinity, sweeps: true },
];

const usualArms: readonly ArmPlan[] = [
  ...unbounded,
  { name: 'packets 4800 MiB', policy: 'phase', budget: 4800 * mebibyte },
  { name: 'packets regime C', policy: 'phase', budget: 'regime C' },
  { name: certifiedName, policy: 'certified', budget: 3600 * mebibyte },
  { name: 'certified resident', policy: 'certified', budget: Infinity },
  { name: 'forecast early 4800 MiB', policy: 'forecast', budget: 4800 * mebibyte },
  { name: 'forecast late 4800 MiB', policy: 'forecast', budget: 4800 * mebibyte, forecast: 'late' },
  { name: 'stream 4800 MiB', policy: 'stream', budget: 4800 * mebibyte },
  { name: 'stream strided 4800 MiB', policy: 'stream', budget: 4800 * mebibyte, streamLayout: 'strided' },
];

const nativeArms: readonly ArmPlan[] = [
  { name: 'native resident', policy: 'resident', budget: Infinity },
  { name: 'native packets 4800 MiB', policy: 'phase', budget: 4800 * mebibyte },
  { name: 'native stream 4800 MiB', policy: 'stream', budget: 4800 * mebibyte },
];

const sweptArms: readonly ArmPlan[] = [
  { name: 'resident-sparse', policy: 'resident-sparse', budget: Infinity, sweeps: true },
  { name: 'packets 4800 MiB', policy: 'phase', budget: 4800 * mebibyte, sweeps: true },
];

function boundedArms({ weightBytes }: ShapeModel, share: number): ArmPlan[] {
  const budget = Math.floor(weightBytes * share);
  const text = `${Math.round(share * 100)} % of weights`;
  return [
    { name: `packets ${text}`, policy: 'phase', budget, sweeps: true },
    { name: `stream ${text}`, policy: 'stream', budget },
  ];
}
