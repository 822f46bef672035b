import { blockInputs } from '../backend/ops.js';
import { exp64 } from '../base/binary64.js';
import type { LowBitName } from '../checkpoint/low-bit.js';
import { type ActivationProfile, byUse, type ProfiledMatrix } from './activation-profile.js';
import type { PlacedCertificate } from './placement.js';
import type { RowPath } from './policy.js';
import type { Retention } from './retain-rows.js';
import { packetIndexBytes } from './staged-way.js';
import type { SurveyedMatrix } from './survey.js';

/** Share of active neurons assumed where nothing is known; published ReLU models lie between .03 and .1. */
export const defaultActiveShare = 0.05;
/** Share of a token's rows that the token before used, too, where nothing is known; real text has about this. */
export const defaultRepeatShare = 0.5;

/** What is assumed or known of activity. */
export interface Activity {
  readonly activeShare: number;
  readonly source: 'given' | 'profile' | 'default';
  readonly profile: ActivationProfile | null;
}

/** A share that was given says more of a run than a profile does; the profile still says which neurons. */
export function activityOf(given: number | undefined, profile: ActivationProfile | null): Activity {
  if (given !== undefined) return { activeShare: given, source: 'given', profile: null };
  if (profile === null) return { activeShare: defaultActiveShare, source: 'default', profile: null };
  const neurons = profile.matrices.reduce((total, { counts }) => total + counts.length, 0);
  const uses = profile.matrices.reduce((total, { counts }) => total + sum(counts), 0);
  return { activeShare: uses / (neurons * profile.tokens), source: 'profile', profile };
}

/** Bytes that rows of neurons are expected to move in a decode token, by the way they come. */
export class RowExpectation {
  readonly activity: Activity;
  readonly #path: RowPath | null;
  readonly #retention: Retention | null;
  readonly #recorded: ReadonlyMap<string, ProfiledMatrix>;
  readonly #known = new Map<string, number>(); // a planner asks the same for every choice

  constructor(path: RowPath | null, retention: Retention | null, activity: Activity) {
    this.activity = activity;
    this.#path = path;
    this.#retention = retention;
    this.#recorded = new Map((activity.profile?.matrices ?? []).map((matrix) => [matrix.id, matrix]));
  }

  bytes(matrix: SurveyedMatrix, keptRows: number): number {
    const key = `${matrix.description.id} ${keptRows}`;
    let bytes = this.#known.get(key);
    if (bytes === undefined) {
      bytes = this.#rows(matrix, keptRows) * (matrix.rowBytes + this.#indexBytes());
      this.#known.set(key, bytes);
    }
    return bytes;
  }

  #indexBytes(): number {
    return this.#path === 'staged' ? packetIndexBytes : 0;
  }

  #rows(matrix: SurveyedMatrix, keptRows: number): number {
    if (matrix.certificate !== null) {
      return uncertainShare(this.#activeShareOf(matrix), matrix.certificate) * (matrix.rows - keptRows);
    }
    const recorded = this.#recorded.get(matrix.description.id);
    if (recorded === undefined) return this.#rowsOfEqualNeurons(matrix.rows, keptRows);
    const shares = recorded.counts.map((uses) => uses / this.activity.profile!.tokens);
    const active = sum(shares);
    switch (this.#path) {
      case 'extents':
        return extentRows(shares);
      case 'forecast':
        return active * (2 - recorded.repeats / Math.max(1, sum(recorded.counts)));
      case 'retained':
        return this.#retention?.kind === 'lru'
          ? active * (1 - lruHitShare(shares, keptRows))
          : active - sum(Array.from(byUse(recorded.counts).subarray(0, keptRows), (n) => shares[n]!));
      default:
        return active * (1 - keptRows / matrix.rows);
    }
  }

  /** Of the neurons of a first projection or gate, by what the record has of the rows that follow from them. */
  #activeShareOf({ description: { id, role } }: SurveyedMatrix): number {
    const follower = id.replace(/[^.]+$/, role === 'gate' ? 'up' : 'second');
    const recorded = this.#recorded.get(follower);
    if (recorded === undefined) return this.activity.activeShare;
    return sum(recorded.counts) / (recorded.counts.length * this.activity.profile!.tokens);
  }

  /** Every neuron as likely as another: rows from before save no more than their share. */
  #rowsOfEqualNeurons(rows: number, keptRows: number): number {
    const share = this.activity.activeShare;
    switch (this.#path) {
      case 'extents':
        return rows * (1 - (1 - share) ** Math.min(rows, blockInputs));
      case 'forecast':
        return share * rows * (2 - defaultRepeatShare);
      default:
        return share * (rows - keptRows);
    }
  }
}

/**
 * Uncertain neurons for each active one, of a trained OPT of width 1,024 on held-out text (3.5 % active; docs/certificates.md),
 * without directions and with 64. A wider or narrower model has others: `waybill profile --certify` counts them.
 */
const uncertainPerActive: Readonly<Record<LowBitName, readonly [number, number]>> = {
  int8: [1.35, 1.2],
  int8g32: [1.25, 1.15],
  int6g32: [2.1, 1.6],
  int5g32: [4.3, 2.6],
  int4g32: [14, 6.6],
};

function uncertainShare(activeShare: number, { format, directions }: PlacedCertificate): number {
  return Math.min(1, activeShare * uncertainPerActive[format][directions > 0 ? 1 : 0]);
}

/** Rows of extents with at least one active neuron, were neurons independent. */
function extentRows(shares: readonly number[]): number {
  let expected = 0;
  for (let begin = 0; begin < shares.length; begin += blockInputs) {
    const extent = shares.slice(begin, begin + blockInputs);
    expected += extent.length * (1 - extent.reduce((none, share) => none * (1 - share), 1));
  }
  return expected;
}

/**
 * Share of hits of an LRU under independent uses (Che, Tung and Wang, 2002): the time T for which an unused row stays
 * solves sum(1 - exp(-share T)) = capacity. Text repeats its neurons and does better.
 */
function lruHitShare(shares: readonly number[], capacity: number): number {
  const used = shares.filter((share) => share > 0);
  if (used.length <= capacity) return 1;
  const held = (time: number) => sum(used.map((share) => 1 - exp64(-share * time)));
  let [low, high] = [0, 1];
  while (held(high) < capacity && high < 2 ** 40) high *= 2;
  for (let step = 0; step < 20; step += 1) {
    const middle = (low + high) / 2;
    if (held(middle) < capacity) low = middle;
    else high = middle;
  }
  return sum(used.map((share) => share * (1 - exp64(-share * low)))) / sum(used);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
