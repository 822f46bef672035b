import { check, type DriverLibrary } from './driver.js';
import type { Launch } from './launch.js';
import type { Launcher } from './launcher.js';

interface Entry {
  readonly key: string;
  readonly words: Float64Array;
  readonly launches: readonly Launch[];
  executable: bigint | null;
  /** False once it gave way. */
  kept: boolean;
}

/** Graphs beyond this many give way, the longest unused first: a batch that shrinks has one for each size. */
const mostGraphs = 16;
/** Below this many kernels a graph saves less than finding it costs. */
const fewestLaunches = 8;
/** Fewer ops than these do not come to so many kernels: pieces of streamed matrices come alone, and are not looked for. */
export const fewestGraphOps = 4;

/**
 * Replays submissions that come again word for word, as those of decode passes do: ids and positions lie in buffers.
 * The first time a program is planned and launched, the second time recorded, from then on replayed.
 */
export class GraphCache {
  readonly #driver: DriverLibrary;
  readonly #launcher: Launcher;
  readonly #stream: bigint;
  readonly #entries = new Map<string, Entry[]>();
  readonly #entryOf = new WeakMap<object, Entry>();
  #replays = 0;

  constructor(driver: DriverLibrary, launcher: Launcher, stream: bigint) {
    this.#driver = driver;
    this.#launcher = launcher;
    this.#stream = stream;
  }

  get replays(): number {
    return this.#replays;
  }

  get graphs(): number {
    return [...this.#all()].filter(({ executable }) => executable !== null).length;
  }

  /**
   * `words` identify the program; `plan` gives its launches. `list` is an object that always stands for the same words,
   * or null: comparing ten thousand words takes longer than launching their graph.
   */
  run(words: () => Float64Array, plan: () => readonly Launch[], list: object | null = null): void {
    const entry = this.#find(words, list);
    if (entry === null) {
      const launches = plan();
      this.#launcher.run(launches);
      if (launches.length >= fewestLaunches) this.#keep(words(), launches);
      return;
    }
    if (list !== null) this.#entryOf.set(list, entry);
    const alike = this.#entries.get(entry.key)!;
    this.#entries.delete(entry.key); // most recent last
    this.#entries.set(entry.key, alike);
    entry.executable ??= this.#launcher.capture(entry.launches);
    check(
      this.#driver,
      'cuGraphLaunch',
      this.#driver.cuGraphLaunch(entry.executable, this.#stream),
      'run a graph',
    );
    this.#replays += 1;
  }

  clear(): void {
    for (const entry of this.#all()) this.#drop(entry);
    this.#entries.clear();
  }

  #find(words: () => Float64Array, list: object | null): Entry | null {
    const known = list === null ? undefined : this.#entryOf.get(list);
    if (known?.kept === true) return known;
    const program = words();
    const alike = this.#entries.get(keyOf(program)) ?? [];
    return alike.find((one) => equal(one.words, program)) ?? null;
  }

  #keep(words: Float64Array, launches: readonly Launch[]): void {
    const key = keyOf(words);
    const entry: Entry = { key, words, launches, executable: null, kept: true };
    this.#entries.set(key, [...(this.#entries.get(key) ?? []), entry]);
    while ([...this.#all()].length > mostGraphs) {
      const [oldest, entries] = this.#entries.entries().next().value!;
      this.#entries.delete(oldest);
      for (const one of entries) this.#drop(one);
    }
  }

  #drop(entry: Entry): void {
    if (entry.executable !== null) this.#driver.cuGraphExecDestroy(entry.executable);
    entry.executable = null;
    entry.kept = false;
  }

  *#all(): Generator<Entry> {
    for (const entries of this.#entries.values()) yield* entries;
  }
}

/** Cheap and only to find candidates; equality is decided word for word. */
function keyOf(words: Float64Array): string {
  let sum = 0;
  for (let index = 0; index < words.length; index += 1) sum = (sum * 31 + words[index]!) % 9007199254740881;
  return `${words.length} ${sum}`;
}

function equal(a: Float64Array, b: Float64Array): boolean {
  return Buffer.compare(Buffer.from(a.buffer), Buffer.from(b.buffer)) === 0;
}
