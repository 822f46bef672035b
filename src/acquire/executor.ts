import type { Backend, Runs, Transfer, TransferFile } from '../backend/backend.js';
import { ExecutionError } from '../base/errors.js';
import type { Span } from '../memory/buffers.js';
import type { MoveCause } from '../memory/causes.js';
import type { Ledger } from '../memory/ledger.js';

/** A region of the prepared weights and where it is to land. */
export interface WeightRegion {
  readonly position: number; // byte offset in the weights file
  readonly target: Span;
  /** Where it is not the weights file. */
  readonly file?: TransferFile;
  readonly runs?: Runs;
}

/** Why regions move. */
export interface MovePurpose {
  readonly cause: MoveCause;
  readonly layer: number | null;
  readonly id: string;
  readonly rows: number;
  readonly pass: number;
}

/**
 * The one piece that moves weight bytes. A move is charged, and traced, when it is asked for: bytes asked for and then
 * not used count like all others.
 */
export class WeightMover {
  readonly backend: Backend;
  readonly #file: TransferFile;
  readonly #ledger: Ledger;
  #readNs = 0n;

  constructor(backend: Backend, file: TransferFile, ledger: Ledger) {
    this.backend = backend;
    this.#file = file;
    this.#ledger = ledger;
  }

  /** Nanoseconds that reads took, each by itself; reads that ran together count twice. */
  get readNs(): bigint {
    return this.#readNs;
  }

  /** Resolves when all regions have landed. Rejects as `Backend.transfer` does. */
  async move(purpose: MovePurpose, regions: readonly WeightRegion[]): Promise<void> {
    let bytes = 0;
    for (const { target } of regions) bytes += target.byteLength;
    const { cause, rows, layer, id, pass } = purpose;
    this.#ledger.move(cause, bytes, rows, {
      layer,
      id,
      regions: regions.length,
      from: 'disk',
      to: 'ram',
      pass,
    });
    await this.read(id, regions);
  }

  /** Moves regions whose charge comes later, when it is known what they were good for. Rejects as `move` does. */
  async read(id: string, regions: readonly WeightRegion[]): Promise<void> {
    let bytes = 0;
    for (const { target } of regions) bytes += target.byteLength;
    const file = this.#file;
    const transfers: Transfer[] = regions.map((region) =>
      region.file === undefined && region.runs === undefined
        ? { file, position: region.position, target: region.target } // spreading thousands of rows takes milliseconds
        : { file, ...region },
    );
    const report = await this.backend.transfer(transfers);
    this.#readNs += report.elapsedNs;
    if (report.requestedBytes !== bytes) {
      throw new ExecutionError(
        'short-read',
        `Cannot read "${id}": ${report.requestedBytes} of ${bytes} bytes were moved`,
        { id, bytes, movedBytes: report.requestedBytes },
      );
    }
  }
}
