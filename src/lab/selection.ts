import { canonicalJson } from '../base/canonical-json.js';
import type { EndedRecord, Manifest, RunRecord, Slot, TrialRecord } from './record-format.js';

/** Trials of one whole block by arm. */
export type Block = ReadonlyMap<string, TrialRecord>;

/** Which records of a run count, by the rules of docs/formats/lab-run.md. */
export interface Selection {
  readonly references: readonly TrialRecord[];
  readonly warmUps: readonly TrialRecord[];
  /** By index; null where no attempt is whole. Up to where a sequential rule ended the run. */
  readonly blocks: readonly (Block | null)[];
  /** Every trial that gave results, whether it counts for figures or not: all of them must be faithful. */
  readonly judged: readonly TrialRecord[];
  readonly ended: EndedRecord | null;
  /** `killed`: nothing says how it ended. */
  readonly status: EndedRecord['status'] | 'killed';
  /** What did not go as scheduled and was kept. */
  readonly deviations: readonly string[];
  /** What no run of this program leaves: records that do not follow the schedule. */
  readonly violations: readonly string[];
}

/** Follows the records along the schedule. */
export function selectTrials(manifest: Manifest, records: readonly RunRecord[]): Selection {
  const walk = new Walk(manifest);
  for (const record of records) walk.take(record);
  return walk.selection();
}

/** Trials that come from a slot on, and warm-ups again where a new process goes on behind them. */
export function slotsFrom(slots: readonly Slot[], next: number): Slot[] {
  const warmUps = slots.filter(({ phase }) => phase === 'warm-up');
  const behindWarmUps = slots[next]?.phase === 'measured';
  return [...(behindWarmUps ? warmUps : []), ...slots.slice(next)];
}

class Walk {
  readonly #manifest: Manifest;
  readonly #references: TrialRecord[] = [];
  #warmUps: TrialRecord[] = [];
  readonly #judged: TrialRecord[] = [];
  /** Attempts of each block, in order. */
  readonly #attempts = new Map<number, Map<string, TrialRecord>[]>();
  readonly #deviations: string[] = [];
  readonly #violations: string[] = [];
  /** Slots that come, from `#next` on: a list of a hundred thousand is not shifted. */
  #coming: readonly Slot[];
  #next = 0;
  #ended: EndedRecord | null = null;
  #whole: readonly (Block | null)[] | null = null;

  constructor(manifest: Manifest) {
    this.#manifest = manifest;
    this.#coming = manifest.slots;
  }

  take(record: RunRecord): void {
    const place = `record ${record.sequence}`;
    if (this.#ended !== null && (record.kind !== 'resumed' || this.#ended.status !== 'interrupted')) {
      this.#violations.push(`${place} comes after the end of the run`);
    }
    if (record.kind === 'ended') {
      this.#ended = record;
      const stopped = record.stoppedAfterBlocks;
      if (stopped !== undefined && record.status !== 'completed')
        this.#violations.push(`${place} names a block to stop after, and does not call the run completed`);
      if (record.status === 'completed' && stopped !== undefined) {
        const next = this.#coming.slice(this.#next).find(({ phase }) => phase === 'measured');
        if (next?.block !== stopped || next.position !== 0)
          this.#violations.push(`${place} stops the run after ${stopped} blocks, which is not where it is`);
      } else if (record.status === 'completed' && this.#next < this.#coming.length) {
        this.#violations.push(
          `${place} calls the run completed, and ${this.#coming.length - this.#next} trials did not run`,
        );
      }
      return;
    }
    if (record.kind === 'resumed') {
      this.#ended = null;
      this.#coming = slotsFrom(this.#manifest.slots, record.nextSlot);
      this.#next = 0;
      const broken =
        record.brokenBlock === null
          ? 'between blocks'
          : `in block ${record.brokenBlock + 1}, which was repeated`;
      this.#deviations.push(`the run was broken off ${broken}, and resumed by another process (${place})`);
      if (!this.#mayResumeAt(record.nextSlot)) {
        this.#violations.push(
          `${place} resumes at trial ${record.nextSlot + 1}, which leaves trials out or repeats whole blocks`,
        );
      }
      return;
    }
    const wanted = this.#coming[this.#next++];
    if (wanted === undefined || canonicalJson(wanted) !== canonicalJson(record.slot)) {
      this.#violations.push(`${place} is not the trial that the schedule has there`);
    }
    this.#add(record);
  }

  /** A run goes on at the first trial that has no result, or at the begin of the block or phase that lacks one. */
  #mayResumeAt(next: number): boolean {
    return (
      next === resumePoint(this.#manifest, this.#wholeBlocks(), this.#references.length, this.#warmUps.length)
    );
  }

  #add(record: TrialRecord): void {
    if (record.status === 'completed' || record.status === 'different') this.#judged.push(record);
    else this.#deviations.push(`record ${record.sequence}: trial of "${record.slot.arm}" ${record.status}`);
    if (record.slot.phase === 'measured') {
      this.#addMeasured(record, record.slot.block ?? -1);
      return;
    }
    if (record.status !== 'completed') return;
    if (record.slot.phase === 'reference') this.#references.push(record);
    else {
      const first = canonicalJson(this.#manifest.slots.find(({ phase }) => phase === 'warm-up') ?? null);
      if (canonicalJson(record.slot) === first && record.attempt > 1) this.#warmUps = [];
      this.#warmUps.push(record);
    }
  }

  #addMeasured(record: TrialRecord, block: number): void {
    this.#whole = null;
    const attempts = this.#attempts.get(block) ?? [];
    this.#attempts.set(block, attempts);
    if (record.attempt === attempts.length + 1) attempts.push(new Map());
    const attempt = attempts[record.attempt - 1];
    if (attempt === undefined || record.attempt !== attempts.length || attempt.has(record.slot.arm)) {
      this.#violations.push(
        `record ${record.sequence} is attempt ${record.attempt} of block ${block + 1}, want ${attempts.length}`,
      );
      return;
    }
    attempt.set(record.slot.arm, record);
  }

  /** Counted anew only after another trial: many resumptions of a large run would take long. */
  #wholeBlocks(): readonly (Block | null)[] {
    this.#whole ??= this.#countWholeBlocks();
    return this.#whole;
  }

  #countWholeBlocks(): (Block | null)[] {
    const arms = new Set(
      this.#manifest.slots.flatMap(({ phase, arm }) => (phase === 'measured' ? [arm] : [])),
    );
    const blocks = 1 + Math.max(-1, ...this.#manifest.slots.map(({ block }) => block ?? -1));
    return Array.from({ length: blocks }, (_, block) => {
      const whole = (this.#attempts.get(block) ?? []).filter(
        (attempt) =>
          attempt.size === arms.size && [...attempt.values()].every(({ status }) => status === 'completed'),
      );
      if (whole.length > 1)
        this.#violations.push(`block ${block + 1} was run ${whole.length} times, want once`);
      return whole[0] ?? null;
    });
  }

  selection(): Selection {
    return {
      references: this.#references,
      warmUps: this.#warmUps,
      blocks: this.#wholeBlocks().slice(0, this.#ended?.stoppedAfterBlocks),
      judged: this.#judged,
      ended: this.#ended,
      status: this.#ended?.status ?? 'killed',
      deviations: this.#deviations,
      violations: [...new Set(this.#violations)],
    };
  }
}

/**
 * Index of the slot at which a broken run goes on: the first reference that is missing; the first warm-up where not all
 * of them ran; the begin of the first block that is not whole; the end where nothing is missing.
 */
export function resumePoint(
  { slots }: Manifest,
  blocks: readonly (Block | null)[],
  references: number,
  warmUps: number,
): number {
  let seenReferences = 0;
  const warmUpSlots = slots.filter(({ phase }) => phase === 'warm-up').length;
  const anyBlock = blocks.some((block) => block !== null);
  for (const [index, slot] of slots.entries()) {
    if (slot.phase === 'reference' && ++seenReferences > references) return index;
    if (slot.phase === 'warm-up' && warmUps < warmUpSlots && !anyBlock) return index;
    if (slot.phase === 'measured' && blocks[slot.block ?? -1] == null) return index;
  }
  return slots.length;
}
