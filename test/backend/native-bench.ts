import type { Backend } from '../../src/backend/backend.js';
import type { Op } from '../../src/backend/ops.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import type { StoredType } from '../../src/base/stored-type.js';
import type { Span } from '../../src/memory/buffers.js';
import { spanOf } from '../../src/memory/buffers.js';

export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  unit(): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return this.#state / 2 ** 32;
  }
  below(n: number): number {
    return Math.floor(this.unit() * n);
  }
  /** Mostly ordinary numbers; subnormals, zeros of both signs and, rarely, very large ones among them. */
  number(): number {
    const kind = this.below(40);
    if (kind === 0) return -0;
    if (kind === 1) return 0;
    if (kind === 2) return (this.unit() - 0.5) * 2 ** -130;
    if (kind === 3) return (this.unit() - 0.5) * 2 ** 60;
    return this.unit() * 4 - 2;
  }
  floats(length: number): Float32Array {
    return Float32Array.from({ length }, () => this.number());
  }
  /** As left by preceding inputs: sums are never -0. */
  sums(length: number): Float32Array {
    return this.floats(length).map((value) => value + 0);
  }
  /** Any stored bits, every infinity, NaN and subnormal among them, when `wild`; else finite. */
  stored(type: StoredType, length: number, wild: boolean): Float32Array | Uint16Array {
    if (type === 'f32') {
      const values = this.floats(length);
      if (wild && length > 0) values[this.below(length)] = [Number.NaN, Infinity, -Infinity][this.below(3)]!;
      return values;
    }
    const exponent = type === 'f16' ? 0x7c00 : 0x7f80;
    return Uint16Array.from({ length }, () => {
      const bits = this.below(65536);
      if (wild && this.below(50) === 0) return bits;
      if (type === 'bf16') return (bits & 0x807f) | ((100 + this.below(50)) << 7);
      return (bits & exponent) === exponent ? bits & ~0x4000 : bits;
    });
  }
}

/**
 * The same op on the oracle, once, and on every opened native backend, over operands that all of them hold; outputs
 * are compared as bits, any NaN equal to any (`exact`: as they are, for halves, which look like NaN in pairs).
 */
export class Bench {
  readonly natives: readonly Backend[];
  readonly #oracle = openOracle();
  /** The oracle's span, to the natives' spans. */
  readonly #spans = new Map<Span, readonly Span[]>();

  constructor(natives: readonly Backend[]) {
    this.natives = natives;
  }

  put(array: Float32Array | Uint16Array | Int32Array | Uint32Array): Span {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    const request = {
      label: 'operand',
      cause: 'workspace',
      byteLength: Math.max(64, bytes.byteLength),
    } as const;
    const [ours, ...theirs] = [this.#oracle, ...this.natives].map((backend) => {
      const span = { ...spanOf(backend.allocate(request)), byteLength: bytes.byteLength };
      backend.write(span, bytes);
      return span;
    });
    this.#spans.set(ours!, theirs);
    return ours!;
  }

  #forNative(value: unknown, index: number): unknown {
    if (value === null || typeof value !== 'object') return value;
    const spans = this.#spans.get(value as Span);
    if (spans !== undefined) return spans[index]!;
    return Object.fromEntries(
      Object.entries(value).map(([key, inner]) => [key, this.#forNative(inner, index)]),
    );
  }

  /** `op` as native backend `index` takes it. */
  opFor(op: Op, index: number): Op {
    return this.#forNative(op, index) as Op;
  }

  async same(op: Op, results: readonly Span[], what: string, exact = false): Promise<void> {
    await this.#oracle.submit([{ label: what, op }]);
    for (const [index, native] of this.natives.entries()) {
      await native.submit([{ label: what, op: this.opFor(op, index) }]);
      for (const result of results) {
        const viewed = (bytes: Uint8Array): ArrayLike<number> =>
          exact ? new Uint16Array(bytes.buffer) : new Float32Array(bytes.buffer);
        const want = viewed(await this.#oracle.read(result));
        const got = viewed(await native.read(this.#spans.get(result)![index]!));
        let at = 0;
        while (at < want.length && Object.is(got[at], want[at])) at++;
        if (at === want.length) continue;
        const { kernels, threads } = native.info;
        throw new Error(
          `${what}: ${kernels}, ${threads} threads: element ${at} is ${got[at]}, not ${want[at]}`,
        );
      }
    }
  }

  /** Frees all operands. */
  clear(): void {
    for (const [ours, theirs] of this.#spans) {
      this.#oracle.release(ours.buffer);
      theirs.forEach((span, index) => {
        this.natives[index]!.release(span.buffer);
      });
    }
    this.#spans.clear();
  }

  async close(): Promise<void> {
    await Promise.all(this.natives.map((native) => native.close()));
  }
}
