/**
 * Withholds the end of a text while it may still become a stop string, so that no part of one is ever shown. The stop
 * string that is complete first ends the text, the longest of several that end together: what is shown does not depend
 * on how the text was cut into pieces.
 */
export class StopText {
  readonly #stops: readonly string[];
  #held = '';
  #stopped = false;

  constructor(stops: readonly string[]) {
    this.#stops = stops;
  }

  /** True once a stop string has come; nothing is released after it. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Takes new text and returns what may be shown now. */
  push(text: string): string {
    if (this.#stopped) return '';
    const pending = this.#held + text;
    const cut = firstStop(pending, this.#stops);
    if (cut >= 0) {
      this.#stopped = true;
      this.#held = '';
      return pending.slice(0, cut);
    }
    const keep = longestPartialStop(pending, this.#stops);
    this.#held = pending.slice(pending.length - keep);
    return pending.slice(0, pending.length - keep);
  }

  /** The text is over: returns what was held back for a stop string that never came. */
  flush(): string {
    const rest = this.#held;
    this.#held = '';
    return rest;
  }
}

/** Where the stop string begins that ends the text, -1 where there is none. */
function firstStop(text: string, stops: readonly string[]): number {
  let begin = -1;
  let end = Infinity;
  for (const stop of stops) {
    const at = text.indexOf(stop);
    if (at < 0 || at + stop.length > end) continue;
    if (at + stop.length < end || at < begin) begin = at;
    end = at + stop.length;
  }
  return begin;
}

/** Length of the longest end of `text` that begins some stop string. */
function longestPartialStop(text: string, stops: readonly string[]): number {
  let longest = 0;
  for (const stop of stops) {
    for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
      if (stop.startsWith(text.slice(text.length - length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}
