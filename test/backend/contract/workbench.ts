import type { Backend } from '../../../src/backend/backend.js';
import type { StoredType } from '../../../src/base/stored-type.js';
import type { DeviceBuffer, Span } from '../../../src/memory/buffers.js';
import type { CaseRandom } from './case-random.js';

/** How a buffer is compared: NaN equals NaN among floats; of an active set only the count and the list matter. */
type Comparison = 'f32' | 'f16' | 'bytes' | 'active' | 'ignored';

interface Held {
  readonly buffer: DeviceBuffer;
  readonly span: Span;
  readonly comparison: Comparison;
}

/** What a buffer held after a case ran. */
export interface Snapshot {
  readonly label: string;
  readonly words: Uint32Array | Uint16Array | Uint8Array;
}

/**
 * The operands of one case on one backend. Every span lies in a buffer of its own between random guard bytes, at an
 * offset that is aligned to 4 and seldom to more. All buffers are compared afterwards, inputs and guards too, so a
 * stray write anywhere shows.
 */
export class Workbench {
  readonly backend: Backend;
  readonly random: CaseRandom;
  readonly #held: Held[] = [];

  constructor(backend: Backend, random: CaseRandom) {
    this.backend = backend;
    this.random = random;
  }

  floats(label: string, values: Float32Array): Span {
    return this.#place(label, bytesOf(values), 'f32');
  }

  /** Room for F32 results, full of random bits. */
  room(label: string, count: number): Span {
    return this.#place(label, this.random.bytes(count * 4), 'f32');
  }

  stored(label: string, type: StoredType, bytes: Uint8Array): Span {
    return this.#place(label, bytes, type === 'f32' ? 'f32' : 'bytes');
  }

  /** As prepared weights lie: at a multiple of 16 bytes. */
  storedAligned(label: string, type: StoredType, bytes: Uint8Array): Span {
    return this.#place(label, bytes, type === 'f32' ? 'f32' : 'bytes', 16);
  }

  cache(label: string, type: 'f16' | 'f32', bytes: Uint8Array): Span {
    return this.#place(label, bytes, type);
  }

  integers(label: string, values: readonly number[]): Span {
    return this.#place(label, bytesOf(Int32Array.from(values)), 'bytes');
  }

  /** An active set of at most `width` neurons, holding `neurons`, or rubbish for `compact` to fill. */
  active(label: string, width: number, neurons: readonly number[] | null): Span {
    const words = new Uint32Array(this.random.bytes((1 + width) * 4).slice().buffer);
    if (neurons !== null) words.set([neurons.length, ...neurons]);
    return this.#place(label, bytesOf(words), 'active');
  }

  /** Its size depends on the backend, so it takes no random numbers: all operands are the same on every backend. */
  scratch(label: string, count: number): Span {
    const buffer = this.backend.allocate({ label, cause: 'workspace', byteLength: count * 4 });
    const span = { buffer, byteOffset: 0, byteLength: count * 4 };
    this.#held.push({ buffer, span, comparison: 'ignored' });
    return span;
  }

  #place(label: string, bytes: Uint8Array, comparison: Comparison, alignment = 4): Span {
    const front = alignment * (1 + this.random.below(20));
    // A span of halves may end between two words; the guard behind it fills up to the next.
    const byteLength = front + Math.ceil(bytes.byteLength / 4) * 4 + 4 * (1 + this.random.below(20));
    const all = this.random.bytes(byteLength).slice();
    all.set(bytes, front);
    const buffer = this.backend.allocate({ label, cause: 'workspace', byteLength });
    this.backend.write({ buffer, byteOffset: 0, byteLength }, all);
    const span = { buffer, byteOffset: front, byteLength: bytes.byteLength };
    this.#held.push({ buffer, span, comparison });
    return span;
  }

  async snapshots(): Promise<Snapshot[]> {
    const result: Snapshot[] = [];
    for (const { buffer, span, comparison } of this.#held) {
      if (comparison === 'ignored') continue;
      const whole = { buffer, byteOffset: 0, byteLength: buffer.byteLength };
      const bytes = await this.backend.read(whole);
      result.push({ label: buffer.label, words: comparable(bytes, span, comparison) });
    }
    return result;
  }

  release(): void {
    for (const { buffer } of this.#held) this.backend.release(buffer);
  }
}

function comparable(bytes: Uint8Array, span: Span, comparison: Comparison): Snapshot['words'] {
  const copy = bytes.slice();
  if (comparison === 'f32') {
    return new Uint32Array(copy.buffer).map((bits) => ((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits));
  }
  if (comparison === 'f16') {
    return new Uint16Array(copy.buffer).map((bits) => ((bits & 0x7fff) > 0x7c00 ? 0x7e00 : bits));
  }
  if (comparison === 'active') {
    const words = new Uint32Array(copy.buffer);
    const first = span.byteOffset / 4;
    words.fill(0, first + 1 + words[first]!, first + span.byteLength / 4);
    return words;
  }
  return copy;
}

function bytesOf(values: Float32Array | Int32Array | Uint32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** Null where both snapshots hold the same, else the first place where they differ. */
export function difference(expected: readonly Snapshot[], actual: readonly Snapshot[]): string | null {
  for (const [index, { label, words }] of expected.entries()) {
    const other = actual[index]!.words;
    if (Buffer.compare(asBytes(words), asBytes(other)) === 0) continue;
    const at = words.findIndex((word, place) => word !== other[place]);
    let count = 0;
    for (let place = at; place < words.length; place++) if (words[place] !== other[place]) count++;
    return `"${label}" word ${at}: expected ${shown(words[at]!, words)}, got ${shown(other[at]!, words)} (${count} of ${words.length} differ)`;
  }
  return null;
}

function asBytes(words: Snapshot['words']): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
}

function shown(word: number, words: Snapshot['words']): string {
  const hex = `0x${word.toString(16)}`;
  if (!(words instanceof Uint32Array)) return hex;
  return `${hex} (${new Float32Array(Uint32Array.of(word).buffer)[0]})`;
}
