import type { Backend } from '../../src/backend/backend.js';
import type { PlanChoices } from '../../src/backend/cuda/launch.js';
import type { PlacedOp } from '../../src/backend/ops.js';

/** A GPU as benchmarks use it beyond the interface of backends. */
export interface Measuring extends Backend {
  measure(enqueue: () => Promise<unknown>): Promise<number>;
  /** Plans submissions so from here on; graphs that were recorded are forgotten. */
  planWith?(choices: PlanChoices): void;
  readonly usage: { readonly pinnedBytes: number; readonly devicePeakBytes: number };
}

/** Milliseconds on the device of the ops of a decode pass, by what they are for. */
export interface PartTimes {
  readonly attention: number;
  readonly projections: number;
  readonly rows: number;
  readonly rest: number;
}

/** Decode passes on the device, by events; all in milliseconds. */
export interface PassTimes {
  /** From the first op to the last of a pass that is one submission; null where the host takes part in it. */
  readonly ms: number | null;
  readonly parts: PartTimes;
  /**
   * All ops of a part as one graph between two events, part by part, the median of several; `submissions` where the ops of
   * a pass came in several, which are joined for it: what they read then lies in the buffers that it was last moved to. Waits for
   * weights are in no part, nor is what parts gain by running into one another.
   */
  readonly partsBy: 'pass' | 'submissions';
}

/**
 * `episode`: a prompt, then decode passes that all have the same ops. Passes that are one submission come again as the same
 * frozen list.
 */
export async function passTimes(gpu: Measuring, episode: () => Promise<unknown>): Promise<PassTimes> {
  const each: number[] = [];
  let whole: readonly PlacedOp[] | null = null;
  const passes: PlacedOp[][] = [];
  await submittingBy(gpu, episode, async (list, submit) => {
    if (Object.isFrozen(list)) {
      whole = list;
      each.push(await gpu.measure(() => submit(list)));
      return;
    }
    for (const placed of list) {
      if ('rows' in placed.op && placed.op.rows > 1) continue; // of the prompt
      if (placed.label === passMark) passes.push([]);
      passes.at(-1)?.push(placed);
    }
    await submit(list);
  });
  if (whole !== null) {
    return { ms: median(each.slice(2)), parts: await partsOf(gpu, whole), partsBy: 'pass' };
  }
  // The last one may lack its beginning or its end.
  return { ms: null, parts: await partsOf(gpu, passes.at(-2) ?? []), partsBy: 'submissions' };
}

/** Passes are cut here: what of a pass lies before it is with the pass in front. */
const passMark = 'layers.0.attention';

/** Runs the ops of a pass part by part; what they compute means nothing then, the times do. */
async function partsOf(gpu: Measuring, ops: readonly PlacedOp[]): Promise<PartTimes> {
  const timeOf = async (part: keyof PartTimes): Promise<number> => {
    const list = Object.freeze(ops.filter((placed) => partOf(placed) === part));
    return list.length === 0 ? 0 : submissionMs(gpu, list, 6);
  };
  // Rows first: the activation that they follow shares its bytes with what the others write.
  const rows = await timeOf('rows');
  const attention = await timeOf('attention');
  return { attention, projections: await timeOf('projections'), rows, rest: await timeOf('rest') };
}

/** Median milliseconds on the device of ops that come again as the same frozen list, and so as a graph. */
export async function submissionMs(
  gpu: Pick<Measuring, 'submit' | 'measure'>,
  ops: readonly PlacedOp[],
  repeats: number,
): Promise<number> {
  for (let warm = 0; warm < 3; warm += 1) await gpu.submit(ops);
  const each: number[] = [];
  for (let repeat = 0; repeat < repeats; repeat += 1) each.push(await gpu.measure(() => gpu.submit(ops)));
  return median(each);
}

/** Lets `submit` do what `episode` submits, one list behind another. */
async function submittingBy(
  gpu: Measuring,
  episode: () => Promise<unknown>,
  submit: (ops: readonly PlacedOp[], plain: (ops: readonly PlacedOp[]) => Promise<void>) => Promise<unknown>,
): Promise<void> {
  const plain = gpu.submit;
  let last: Promise<unknown> = Promise.resolve();
  gpu.submit = async (ops) => {
    const running = last.then(() => submit(ops, (list) => plain.call(gpu, list)));
    last = running;
    await running;
  };
  try {
    await episode();
  } finally {
    gpu.submit = plain;
  }
}

/** `rows`: second projections, dense or from active rows. Norms and stores belong to the products they are part of. */
function partOf({ label, op }: PlacedOp): keyof PartTimes {
  if (op.kind === 'attention') return 'attention';
  if (/^layers\.\d+\.second/.test(label)) return 'rows';
  return label.startsWith('layers.') ? 'projections' : 'rest';
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return Number.NaN;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
