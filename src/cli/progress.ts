import { Presets, SingleBar } from 'cli-progress';
import { formatByteSize } from '../base/byte-size.js';
import type { Terminal } from './terminal.js';

/** A bar over bytes or items; draws nothing where standard error is no terminal or the command is quiet. */
export class Progress {
  readonly #terminal: Terminal;
  #bar: SingleBar | null = null;
  #label = '';

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  /** Shows how far the work named `label` has come, in bytes; begins a new bar when the label changes. */
  bytes(label: string, done: number, total: number): void {
    this.#show(label, done, total, formatByteSize);
  }

  /** The same for things that are counted. */
  items(label: string, done: number, total: number): void {
    this.#show(label, done, total, String);
  }

  stop(): void {
    this.#bar?.stop();
    this.#bar = null;
    this.#label = '';
  }

  #show(label: string, done: number, total: number, format: (amount: number) => string): void {
    if (this.#terminal.quiet || total === 0) return;
    if (this.#label !== label) this.#begin(label, total, format);
    this.#bar?.update(done, { shown: `${format(done)} of ${format(total)}` });
    if (done >= total) this.stop();
  }

  #begin(label: string, total: number, format: (amount: number) => string): void {
    this.stop();
    this.#label = label;
    if (process.stderr.isTTY !== true) {
      this.#terminal.note(`${label} (${format(total)})`);
      return;
    }
    this.#bar = new SingleBar(
      {
        format: `${label} [{bar}] {percentage} % | {shown} | {eta_formatted} left`,
        stream: process.stderr,
        hideCursor: true,
      },
      Presets.shades_classic,
    );
    this.#bar.start(total, 0, { shown: '' });
  }
}
