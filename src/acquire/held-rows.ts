import type { Backend } from '../backend/backend.js';
import type { Pass } from '../backend/pass.js';
import { emptyRowIndex, fixedRowIndex, freshPlace, type RowIndex } from '../backend/row-index.js';
import { type Span, subspan } from '../memory/buffers.js';
import { planRounds, type Round, type RoundPlan } from './rounds.js';
import type { RowPlace, RowReader } from './row-reader.js';
import type { RowWay } from './row-way.js';

/** Rows of one matrix that stay in places on a device, found there by an index on the device. */
export class HeldRows {
  readonly index: RowIndex;
  /** The places, `[places, row bytes]`. */
  readonly span: Span;
  readonly #backend: Backend;
  #count: number;

  private constructor(backend: Backend, index: RowIndex, span: Span, count: number) {
    this.#backend = backend;
    this.index = index;
    this.span = span;
    this.#count = count;
  }

  /** An LRU that holds nothing; `words` has room for its index. */
  static replacing(backend: Backend, words: Span, neurons: number, places: number, span: Span): HeldRows {
    const held = new HeldRows(backend, { neurons, places, replaces: true, span: words }, span, 0);
    held.forget();
    return held;
  }

  /** A fixed set: the n-th of these neurons has place n. */
  static fixed(backend: Backend, words: Span, neurons: number, chosen: Uint32Array, span: Span): HeldRows {
    backend.write(words, bytesOf(fixedRowIndex(neurons, chosen)));
    const index = { neurons, places: chosen.length, replaces: false, span: words };
    return new HeldRows(backend, index, span, chosen.length);
  }

  /** Rows held now. */
  get count(): number {
    return this.#count;
  }

  /** Takes note that a lookup of the device had so many missing rows: they fill places until none is free. */
  missed(rows: number): void {
    if (this.index.replaces) this.#count = Math.min(this.index.places, this.#count + rows);
  }

  /** Begins anew. No op that uses the index runs. */
  forget(): void {
    if (!this.index.replaces) return;
    this.#backend.write(this.index.span, bytesOf(emptyRowIndex(this.index)));
    this.#count = 0;
  }

  /** By neuron: where its row lies or is to lie, as the device has it now. */
  async words(): Promise<Uint32Array> {
    const bytes = await this.#backend.read(subspan(this.index.span, 0, 4 * this.index.neurons));
    return new Uint32Array(bytes.slice().buffer);
  }
}

/**
 * Misses of an LRU whose index lies on the device, in passes of more rows than ops read directly: the device looks up and
 * replaces, and the host, which moves the rows, reads what it decided. So passes of both kinds share one state.
 */
export class HeldWay implements RowWay {
  readonly #reader: RowReader;
  readonly #place: RowPlace;
  readonly #packetRows: number;
  readonly #held: HeldRows;
  readonly #hits: Span; // U32 [1]
  readonly #firstSlot: number;
  /** Rounds whose rows have yet to land. */
  #awaited = 0;

  constructor(reader: RowReader, place: RowPlace, packetRows: number, held: HeldRows, hits: Span) {
    this.#reader = reader;
    this.#place = place;
    this.#packetRows = packetRows;
    this.#held = held;
    this.#hits = hits;
    this.#firstSlot = (held.span.byteOffset - place.arena.byteOffset) / place.rowBytes;
  }

  get heldRows(): number {
    return this.#held.count;
  }

  enterLayer(): void {}

  lookUp(pass: Pass, active: Span): void {
    const { index } = this.#held;
    this.#awaited = 1;
    pass.emit(`${this.#place.description.id}.places`, {
      kind: 'retain-rows',
      active,
      index,
      hits: this.#hits,
    });
  }

  async plan(active: Uint32Array): Promise<RoundPlan> {
    const words = await this.#held.words();
    const offered: number[] = [];
    for (const neuron of active) {
      if (words[neuron]! > freshPlace) offered.push(this.#firstSlot + words[neuron]! - freshPlace - 1);
    }
    const plan = planRounds(active, {
      packetRows: this.#packetRows,
      keptSlot: (neuron) => {
        const word = words[neuron]!;
        return word > 0 && word < freshPlace ? this.#firstSlot + word - 1 : -1;
      },
      offer: (newcomer) => offered[newcomer] ?? -1,
    });
    const { ledger } = this.#reader;
    ledger.move('active-set-readback', 4 * words.length, active.length, {
      layer: this.#place.description.layer,
      id: this.#place.description.id,
    });
    chargeHits(this.#reader, this.#place, plan.keptHits);
    this.#held.missed(active.length - plan.keptHits);
    this.#awaited = plan.rounds.length;
    return plan;
  }

  async move(round: Round): Promise<void> {
    await this.#reader.read(this.#place, 'retention-misses', round.runs, round.movedRows);
    this.#awaited -= 1;
  }

  /** The index says of rows that never landed where they lie. */
  async reset(): Promise<void> {
    if (this.#awaited === 0) return;
    this.#awaited = 0;
    try {
      this.#held.forget();
    } catch {
      // A backend that takes no bytes any more computes nothing with them either.
    }
  }
}

/** Rows that were found where they lay. */
export function chargeHits({ ledger }: Pick<RowReader, 'ledger'>, place: RowPlace, rows: number): void {
  if (rows === 0) return;
  const { layer, id } = place.description;
  ledger.move('retention-hits', 0, rows, { layer, id, regions: 0, from: 'ram', to: 'ram' });
}

function bytesOf({ buffer }: Uint32Array): Uint8Array {
  return new Uint8Array(buffer);
}
