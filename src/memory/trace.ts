import type { Move } from './ledger.js';

/** One line of `--trace FILE` (docs/formats/trace.md): a move with its number and time. */
export interface TraceRecord {
  readonly sequence: number; // from 1, without gaps
  readonly tNs: number; // nanoseconds since the trace began
  readonly cause: Move['cause'];
  readonly layer: number | null;
  readonly id: string;
  readonly rows: number;
  readonly bytes: number;
  readonly regions: number;
  readonly from: Move['from'];
  readonly to: Move['to'];
  readonly pass: number;
}

/** Takes records in order; a file sink writes one JSON object a line. */
export type TraceSink = (record: TraceRecord) => void;

/** Numbers and times moves. `new Ledger(trace.record)` connects it; a session without a trace has no object here. */
export class MoveTrace {
  readonly #sink: TraceSink;
  readonly #now: () => bigint;
  readonly #start: bigint;
  #sequence = 0;

  constructor(sink: TraceSink, now: () => bigint = () => process.hrtime.bigint()) {
    this.#sink = sink;
    this.#now = now;
    this.#start = now();
  }

  readonly record = (move: Move): void => {
    this.#sequence += 1;
    const { cause, layer, id, rows, bytes, regions, from, to, pass } = move;
    const tNs = Number(this.#now() - this.#start);
    this.#sink({ sequence: this.#sequence, tNs, cause, layer, id, rows, bytes, regions, from, to, pass });
  };
}

/** The text of one record, with its line end. */
export function traceLine(record: TraceRecord): string {
  return `${JSON.stringify(record)}\n`;
}
