import type { MoveCause } from '../memory/causes.js';
import { planExtents } from './extent-rounds.js';
import { chargeHits } from './held-rows.js';
import { planRounds, type Round, type RoundPlan } from './rounds.js';
import type { RowPlace, RowReader } from './row-reader.js';
import type { RowStore } from './row-store.js';
import type { RowWay } from './row-way.js';

/** Active rows straight into the arena, less those of a store: packets with kept rows, and retention. */
export class PacketWay implements RowWay {
  readonly #reader: RowReader;
  readonly #place: RowPlace;
  readonly #packetRows: number;
  readonly #store: RowStore | null;
  readonly #cause: MoveCause;

  constructor(
    reader: RowReader,
    place: RowPlace,
    packetRows: number,
    store: RowStore | null,
    cause: 'packet-rows' | 'uncertain-rows' | 'retention-misses',
  ) {
    this.#reader = reader;
    this.#place = place;
    this.#packetRows = packetRows;
    this.#store = store;
    this.#cause = cause;
  }

  get heldRows(): number {
    return this.#store?.count ?? 0;
  }

  enterLayer(): void {}

  async plan(active: Uint32Array): Promise<RoundPlan> {
    const store = this.#store;
    store?.begin();
    const plan = planRounds(active, {
      packetRows: this.#packetRows,
      keptSlot: (neuron) => (store === null ? -1 : store.slotOf(neuron)),
      offer: (newcomer) => (store === null ? -1 : store.offer(newcomer)),
    });
    if (this.#cause === 'retention-misses') chargeHits(this.#reader, this.#place, plan.keptHits);
    return plan;
  }

  async move(round: Round): Promise<void> {
    await this.#reader.read(this.#place, this.#cause, round.runs, round.movedRows);
    this.#store?.enter(round.newcomers);
  }

  async reset(): Promise<void> {
    this.#store?.reset();
  }
}

/** Whole extents of 128 rows that hold an active one. */
export class ExtentWay implements RowWay {
  readonly heldRows = 0;
  readonly #reader: RowReader;
  readonly #place: RowPlace;
  readonly #packetRows: number;
  readonly #neurons: number;

  constructor(reader: RowReader, place: RowPlace, packetRows: number, neurons: number) {
    this.#reader = reader;
    this.#place = place;
    this.#packetRows = packetRows;
    this.#neurons = neurons;
  }

  enterLayer(): void {}

  async plan(active: Uint32Array): Promise<RoundPlan> {
    return planExtents(active, this.#packetRows, this.#neurons);
  }

  async move(round: Round): Promise<void> {
    await this.#reader.read(this.#place, 'extent-rows', round.runs, round.movedRows);
  }

  async reset(): Promise<void> {}
}
