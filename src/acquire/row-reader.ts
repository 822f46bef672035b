import type { TransferFile } from '../backend/backend.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { MoveCause } from '../memory/causes.js';
import type { Ledger } from '../memory/ledger.js';
import type { WeightMover, WeightRegion } from './executor.js';
import type { RowRun } from './rounds.js';
import type { LayerCounters } from './stats.js';

/** Where rows of one matrix are read from and to. */
export interface RowPlace {
  readonly description: MatrixDescription;
  /** Where its rows lie apart from the weights file. */
  readonly file?: TransferFile;
  readonly filePosition: number;
  readonly rowBytes: number;
  readonly arena: Span; // [rows, rowBytes]
  readonly counters: LayerCounters;
}

/** Reads runs of rows, all of them for one source; knows how long passes waited for them. */
export class RowReader {
  readonly mover: WeightMover;
  readonly ledger: Ledger;
  #waitNs = 0n;

  constructor(mover: WeightMover, ledger: Ledger) {
    this.mover = mover;
    this.ledger = ledger;
  }

  /** Nanoseconds that passes waited for rows. */
  get waitNs(): bigint {
    return this.#waitNs;
  }

  /** Reads runs that the pass waits for. */
  async read(place: RowPlace, cause: MoveCause, runs: readonly RowRun[], rows: number): Promise<void> {
    if (runs.length === 0) return;
    const { layer, id } = place.description;
    const pass = this.ledger.pass;
    place.counters.movedRows += rows;
    await this.wait(this.mover.move({ cause, layer, id, rows, pass }, regionsOf(place, runs)));
  }

  /** Counts the time that something takes as waiting for rows. */
  async wait(landing: Promise<void>): Promise<void> {
    const began = process.hrtime.bigint();
    try {
      await landing;
    } finally {
      this.#waitNs += process.hrtime.bigint() - began;
    }
  }
}

/** Regions of the file and of the arena for runs of rows. */
export function regionsOf(
  { file, filePosition, rowBytes, arena }: RowPlace,
  runs: readonly RowRun[],
): WeightRegion[] {
  return runs.map(({ neuron, slot, rows }) => {
    const position = filePosition + neuron * rowBytes;
    const target = subspan(arena, slot * rowBytes, rows * rowBytes);
    return file === undefined ? { position, target } : { file, position, target };
  });
}
