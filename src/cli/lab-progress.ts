import { Presets, SingleBar } from 'cli-progress';
import type { Slot } from '../lab/record-format.js';
import type { Terminal } from './terminal.js';

/** Arm, trial and time left, on standard error; without a terminal one line for each phase and block. */
export class LabProgress {
  readonly #terminal: Terminal;
  #bar: SingleBar | null = null;
  #beganMs: number | null = null;
  #heading = '';

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
  }

  get started(): boolean {
    return this.#beganMs !== null;
  }

  /** Tells that a trial begins, `done` of `total` being over. */
  trial({ phase, block, arm }: Slot, done: number, total: number): void {
    this.#beganMs ??= performance.now();
    if (this.#terminal.quiet) return;
    const heading = block === null ? phase : `block ${block + 1}`;
    const left = timeLeft(performance.now() - this.#beganMs, done, total);
    if (process.stderr.isTTY !== true) {
      if (heading !== this.#heading)
        this.#terminal.note(
          `${heading}: trial ${done + 1} of ${total}${left === '' ? '' : `, ${left} left`}`,
        );
    } else {
      this.#bar ??= this.#begin(total);
      this.#bar.update(done, { heading, arm, left: left === '' ? '' : `${left} left` });
    }
    this.#heading = heading;
  }

  stop(): void {
    this.#bar?.stop();
    this.#bar = null;
  }

  #begin(total: number): SingleBar {
    const bar = new SingleBar(
      {
        format: '{heading}, {arm} [{bar}] trial {value} of {total} | {left}',
        stream: process.stderr,
        hideCursor: true,
      },
      Presets.shades_classic,
    );
    bar.start(total, 0, { heading: '', arm: '', left: '' });
    return bar;
  }
}

/** From the mean of the trials so far; empty before the first is over. */
export function timeLeft(elapsedMs: number, done: number, total: number): string {
  if (done === 0) return '';
  const seconds = Math.round(((elapsedMs / done) * (total - done)) / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${seconds % 60} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
