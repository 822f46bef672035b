import type { Backend, MoveWithin } from '../backend/backend.js';
import { type Span, subspan } from '../memory/buffers.js';
import { planRounds, type Round, type RoundPlan } from './rounds.js';
import { type RowPlace, type RowReader, regionsOf } from './row-reader.js';
import type { RowWay } from './row-way.js';

/** Bytes of one index of a packet. */
export const packetIndexBytes = 8;

/** A packet: gathered rows, and for each the neuron that it belongs to. */
export interface Packet {
  readonly rows: Span; // [packet rows, row bytes]
  readonly indices: Span; // U64 [packet rows]
}

/**
 * The older mechanism: the host gathers active rows and their indices into a packet, one copy takes the packet over,
 * and rows are scattered by the indices to the places of their neurons in a workspace of the whole matrix. Nothing
 * overlaps. On a CPU, which has no engine for it, the scatter goes through the host; a device does it by one kernel.
 */
export class StagedWay implements RowWay {
  readonly heldRows = 0;
  readonly #backend: Backend;
  readonly #reader: RowReader;
  /** The arena is the workspace, `[neurons, row bytes]`. */
  readonly #place: RowPlace;
  readonly #packet: Packet;
  #active: Uint32Array = new Uint32Array();

  constructor(backend: Backend, reader: RowReader, place: RowPlace, packet: Packet) {
    this.#backend = backend;
    this.#reader = reader;
    this.#place = place;
    this.#packet = packet;
  }

  enterLayer(): void {}

  async plan(active: Uint32Array): Promise<RoundPlan> {
    this.#active = active;
    const packetRows = this.#packet.indices.byteLength / packetIndexBytes;
    const none = () => -1;
    const plan = planRounds(active, { packetRows, keptSlot: none, offer: none, halves: false });
    return { ...plan, slots: null };
  }

  async move({ listBegin, listEnd, runs, movedRows }: Round): Promise<void> {
    if (movedRows === 0) return;
    const { description, rowBytes } = this.#place;
    const { layer, id } = description;
    const packet = { ...this.#place, arena: this.#packet.rows };
    const neurons = BigUint64Array.from(this.#active.subarray(listBegin, listEnd), BigInt);
    const indices = subspan(this.#packet.indices, 0, neurons.byteLength);
    const { ledger, mover } = this.#reader;
    const purpose = { cause: 'packet-rows', layer, id, rows: movedRows, pass: ledger.pass } as const;
    this.#place.counters.movedRows += movedRows;
    await this.#reader.wait(mover.move(purpose, regionsOf(packet, runs)));
    ledger.move('indices', neurons.byteLength, movedRows, { layer, id, from: 'host', to: 'ram' });
    this.#backend.write(indices, new Uint8Array(neurons.buffer));
    const { hostTier } = this.#backend;
    if (hostTier?.moveWithin !== undefined) {
      const scattered = hostTier.moveWithin(this.#places(this.#active.subarray(listBegin, listEnd)));
      await this.#reader.wait(scattered);
      return;
    }
    const rows = subspan(this.#packet.rows, 0, movedRows * rowBytes);
    this.#scatter(await this.#backend.read(rows), await this.#backend.read(indices));
  }

  async reset(): Promise<void> {}

  /** Where the rows of a packet belong; those of adjacent neurons are one move. */
  #places(neurons: ArrayLike<number>): MoveWithin[] {
    const { arena, rowBytes } = this.#place;
    const moves: MoveWithin[] = [];
    for (let begin = 0; begin < neurons.length; ) {
      let end = begin + 1;
      while (end < neurons.length && neurons[end] === neurons[end - 1]! + 1) end += 1;
      const bytes = (end - begin) * rowBytes;
      moves.push({
        from: subspan(this.#packet.rows, begin * rowBytes, bytes),
        to: subspan(arena, neurons[begin]! * rowBytes, bytes),
      });
      begin = end;
    }
    return moves;
  }

  #scatter(rows: Uint8Array, indexBytes: Uint8Array): void {
    const neurons = Array.from(new BigUint64Array(indexBytes.slice().buffer), Number);
    const begin = this.#packet.rows.byteOffset;
    for (const { from, to } of this.#places(neurons)) {
      const at = from.byteOffset - begin;
      this.#backend.write(to, rows.subarray(at, at + from.byteLength));
    }
  }
}
