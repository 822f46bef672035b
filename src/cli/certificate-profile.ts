import { UsageError } from '../base/errors.js';
import { type LowBitName, lowBitFormat } from '../checkpoint/low-bit.js';
import { roundDirections } from '../checkpoint/low-bit-copy.js';
import { directionUnit, largestDirections } from '../checkpoint/low-bit-layout.js';
import { type LowBitModel, type LowBitOptions, lowBitPlan, openLowBit } from '../checkpoint/low-bit-model.js';
import type { LowBitChoice, LowBitPlan, PlannedDirections } from '../checkpoint/low-bit-plan.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { principalDirections } from '../checkpoint/principal-directions.js';
import { type CertificateCount, CertificateCounter } from '../generate/certificate-counter.js';
import { InputSampler } from '../generate/input-sampler.js';
import type { Session } from '../generate/session.js';
import { plainTable } from './plain-table.js';

/** What `profile --certify` and `--directions` ask for. */
export interface CertificateRequest {
  readonly formats: readonly LowBitName[];
  /** Directions a layer, chosen from the inputs of the text's first quarter; 0: none. */
  readonly directions: number;
}

/** Name under which copies with the cheapest format of each layer are kept. */
export const chosenCopies = 'profiled';

/** What a byte that is fetched by rows costs against one that streams: cold rows of 5,120 bytes read 1.6 to 1.8 times theirs. */
const rowCost = 1.7;

/** @throws UsageError `low-bit-format`, `bad-option` */
export function certificateRequest(
  lowBit: string | undefined,
  directions: number | undefined,
): CertificateRequest | null {
  if (lowBit === undefined) {
    if (directions === undefined) return null;
    throw new UsageError('option-without-effect', 'Cannot use --directions without --certify');
  }
  const formats = [...new Set(lowBit.split(','))];
  for (const format of formats) lowBitFormat(format);
  const count = directions ?? 0;
  if (count % directionUnit !== 0 || count > largestDirections) {
    throw new UsageError(
      'bad-option',
      `Cannot use --directions ${count}: want a multiple of ${directionUnit}, at most ${largestDirections}`,
    );
  }
  return { formats: formats as LowBitName[], directions: count };
}

export interface CertificateProfile {
  readonly counts: readonly CertificateCount[];
  /** By matrix: the copies that cost least. */
  readonly chosen: ReadonlyMap<string, CertificateCount>;
}

/**
 * Counts on a text what certificates by each format would leave undecided, checking every one of them, and writes the
 * copies that cost least a layer under the name `profiled`: a resident byte stands in for one that streams in every token.
 */
export async function profileCertificates(
  session: Session,
  ids: readonly number[],
  request: CertificateRequest,
  feed: (part: readonly number[]) => Promise<void>,
  options: LowBitOptions,
): Promise<CertificateProfile> {
  const { prepared } = session.plan;
  const sampled = request.directions === 0 ? 0 : Math.max(2, Math.floor(ids.length / 4));
  const plans = await plansOf(prepared, request, async () => {
    const sampler = new InputSampler(sampled);
    session.observer = sampler.observer;
    await feed(ids.slice(0, sampled));
    return sampler.samples();
  });
  const models: LowBitModel[] = [];
  try {
    for (const plan of plans) {
      const replace = plan.name.includes('-'); // directions of an earlier sample
      models.push(await openLowBit(prepared, plan, { ...options, replace }));
    }
    const counter = new CertificateCounter(session.backend, models, (id) => session.source.vector(id));
    session.observer = counter.observer;
    await feed(ids.slice(sampled));
    const counts = counter.counts();
    const chosen = cheapest(counts);
    const choices = new Map<string, LowBitChoice>();
    for (const [id, { copies }] of chosen) {
      choices.set(id, plans.find(({ name }) => name === copies)!.choices.get(id)!);
    }
    const written = await openLowBit(
      prepared,
      { name: chosenCopies, choices },
      { ...options, replace: true },
    );
    await written.close();
    return { counts, chosen };
  } finally {
    for (const model of models) await model.close();
  }
}

async function plansOf(
  prepared: PreparedModel,
  { formats, directions }: CertificateRequest,
  sample: () => Promise<ReadonlyMap<string, readonly Float32Array[]>>,
): Promise<LowBitPlan[]> {
  const plain = await Promise.all(formats.map((format) => lowBitPlan(prepared, format)));
  if (directions === 0) return plain;
  const found = new Map<string, PlannedDirections>();
  for (const [id, rows] of await sample()) {
    const inputs = prepared.description.matrices.find((matrix) => matrix.id === id)!.inputs;
    found.set(id, roundDirections(principalDirections(rows, inputs, directions), inputs));
  }
  const directed = plain.map(({ name, choices }) => ({
    name: `${name}-d${directions}`,
    choices: new Map(
      Array.from(choices, ([id, { format }]) => [id, { format, directions: found.get(id) ?? null }]),
    ),
  }));
  return [...plain, ...directed];
}

/** Bytes a token that a copy stands for: its own, each in the place of one that would stream, and the rows it lets pass. */
function costOf({ copyBytes, matrixBytes, uncertain, judged }: CertificateCount): number {
  return copyBytes + rowCost * matrixBytes * (uncertain / Math.max(1, judged));
}

function cheapest(counts: readonly CertificateCount[]): Map<string, CertificateCount> {
  const best = new Map<string, CertificateCount>();
  for (const count of counts) {
    const known = best.get(count.id);
    if (known === undefined || costOf(count) < costOf(known)) best.set(count.id, count);
  }
  return best;
}

/** The table of `profile --certify`. */
export function certificateText({ counts, chosen }: CertificateProfile): string {
  const table = plainTable([
    'matrix',
    'copies',
    'copy bytes',
    'active',
    'uncertain',
    'certified',
    'wrongly',
    'chosen',
  ]);
  for (const count of counts) {
    const share = (part: number) => `${((100 * part) / Math.max(1, count.judged)).toFixed(2)} %`;
    const cells = [
      count.copyBytes,
      share(count.active),
      share(count.uncertain),
      share(count.judged - count.uncertain),
      count.wronglyCertified,
      chosen.get(count.id) === count ? 'yes' : '',
    ];
    const right = cells.map((content) => ({ hAlign: 'right' as const, content: String(content) }));
    table.push([count.id, count.copies, ...right]);
  }
  return table.toString();
}

/** Shares over all layers, by the name of the copies. */
export function certificateTotals(counts: readonly CertificateCount[]) {
  const names = [...new Set(counts.map(({ copies }) => copies))];
  return names.map((copies) => {
    const own = counts.filter((count) => count.copies === copies);
    const sum = (key: 'judged' | 'active' | 'uncertain' | 'wronglyCertified' | 'copyBytes' | 'matrixBytes') =>
      own.reduce((total, count) => total + count[key], 0);
    return {
      copies,
      activeShare: sum('active') / Math.max(1, sum('judged')),
      uncertainShare: sum('uncertain') / Math.max(1, sum('judged')),
      wronglyCertified: sum('wronglyCertified'),
      copyBytes: sum('copyBytes'),
      matrixBytes: sum('matrixBytes'),
    };
  });
}
