/**
 * Withholds the end of a text while it may still become a stop string, so that no part of one is ever shown.
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

function firstStop(text: string, stops: readonly string[]): number {
  let first = -1;
  for (const stop of stops) {
    const at = text.indexOf(stop);
    if (at >= 0 && (first < 0 || at < first)) first = at;
  }
  return first;
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
