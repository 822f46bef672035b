import type { WeightSource } from '../../../src/acquire/weight-source.js';
import type { Backend } from '../../../src/backend/backend.js';
import { type OpObserver, Pass } from '../../../src/backend/pass.js';
import { isSparse } from '../../../src/checkpoint/model-config.js';
import type { ModelDescription } from '../../../src/checkpoint/model-description.js';
import { type Span, spanOf, subspan } from '../../../src/memory/buffers.js';

/** What a test may watch or disturb. */
export interface DriverHooks {
  readonly observer?: OpObserver;
}

/**
 * Asks a source for a model's weights in the order of its description, as a forward pass does, with an FFN that is
 * computed in full and attention left out: `value` stands for its result.
 */
export function driver(options: {
  description: ModelDescription;
  backend: Backend;
  source: WeightSource;
  maxRows: number;
  hooks?: DriverHooks;
}) {
  const { description, backend, source, maxRows } = options;
  const { hiddenSize, ffnSize, vocabSize, activation } = description.config;
  const width = Math.max(hiddenSize, ffnSize, vocabSize);
  const spans = new Map<string, Span>();
  const span = (name: string, rows: number, columns: number) => {
    let whole = spans.get(name);
    if (whole === undefined) {
      const byteLength = maxRows * width * 4;
      whole = spanOf(backend.allocate({ label: name, cause: 'activations', byteLength }));
      spans.set(name, whole);
    }
    return subspan(whole, 0, rows * columns * 4);
  };
  const sparse = isSparse(activation);
  const has = (id: string) => description.matrices.some((matrix) => matrix.id === id);

  async function forward(pass: Pass, ids: readonly number[], wantsHead: boolean): Promise<Span> {
    const rows = ids.length;
    let hidden = span('hidden-0', rows, hiddenSize);
    let spare = span('hidden-1', rows, hiddenSize);
    const swap = () => {
      [hidden, spare] = [spare, hidden];
    };
    await source.gather(pass, { id: 'token-embedding', ids, out: hidden });
    if (description.tables.length > 1) {
      const positions = ids.map((_, index) => index + 2);
      await source.gather(pass, { id: 'position-embedding', ids: positions, out: spare });
      pass.emit('add', { kind: 'add', count: rows * hiddenSize, a: hidden, b: spare, out: hidden });
    }
    for (let layer = 0; layer < description.config.layers; layer += 1) {
      const at = `layers.${layer}`;
      const x = span('input', rows, hiddenSize);
      norm(pass, `${at}.attention-norm`, rows, hidden, x);
      for (const role of ['query', 'key', 'value']) {
        const out = span(role, rows, hiddenSize);
        await source.linear(pass, { id: `${at}.${role}`, rows, x, out, residual: null });
      }
      for (const [a, b] of [
        ['value', 'query'],
        ['value', 'key'],
      ] as const) {
        const out = span(a, rows, hiddenSize);
        pass.emit('add', {
          kind: 'add',
          count: rows * hiddenSize,
          a: out,
          b: span(b, rows, hiddenSize),
          out,
        });
      }
      const value = span('value', rows, hiddenSize);
      await source.linear(pass, { id: `${at}.output`, rows, x: value, out: spare, residual: hidden });
      swap();
      norm(pass, `${at}.ffn-norm`, rows, hidden, x);
      const gated = has(`${at}.gate`);
      const ffn = span('ffn', rows, ffnSize);
      const first = { id: `${at}.${gated ? 'gate' : 'first'}`, rows, x, out: ffn, residual: null };
      await source.linear(pass, first);
      pass.emit(`${at}.activation`, {
        kind: 'activate',
        count: rows * ffnSize,
        activation,
        threshold: 0,
        x: ffn,
      });
      if (gated) {
        const up = span('up', rows, ffnSize);
        const request = { id: `${at}.up`, rows, x, out: up, residual: null };
        await (sparse ? source.gatedLinear(pass, { ...request, gate: ffn }) : source.linear(pass, request));
        pass.emit(`${at}.gated-product`, { kind: 'gated-product', count: rows * ffnSize, gate: ffn, up });
      }
      const second = { id: `${at}.second`, rows, x: ffn, out: spare, residual: hidden };
      await (sparse ? source.sparseLinear(pass, second) : source.linear(pass, second));
      swap();
    }
    const logits = span('logits', rows, vocabSize);
    if (!wantsHead) return hidden;
    const x = span('input', rows, hiddenSize);
    norm(pass, 'final-norm', rows, hidden, x);
    await source.linear(pass, { id: 'head', rows, x, out: logits, residual: null });
    return logits;
  }

  function norm(pass: Pass, id: string, rows: number, x: Span, out: Span): void {
    const beta = description.vectors.some((vector) => vector.id === `${id}.beta`);
    pass.emit(id, {
      kind: 'norm',
      norm: beta ? 'layer' : 'rms',
      rows,
      width: hiddenSize,
      epsilon: Math.fround(1e-5),
      x,
      gamma: source.vector(`${id}.gamma`),
      beta: beta ? source.vector(`${id}.beta`) : null,
      out,
    });
  }

  return {
    /** Runs a pass and returns the bytes of its logits (of its hidden rows without the head). */
    async pass(kind: 'prefill' | 'decode', ids: readonly number[], wantsHead = true): Promise<Uint8Array> {
      const pass = new Pass(backend, options.hooks?.observer ?? null);
      await source.begin(pass, kind);
      const result = await forward(pass, ids, wantsHead);
      await source.end(pass);
      return (await backend.read(result)).slice();
    },
    /** Begins a pass, asks for the first matrices, and never ends it. */
    async abandon(ids: readonly number[]): Promise<void> {
      const pass = new Pass(backend);
      await source.begin(pass, 'decode');
      const rows = ids.length;
      const x = span('input', rows, hiddenSize);
      await source.gather(pass, { id: 'token-embedding', ids, out: x });
      const ffn = span('ffn', rows, ffnSize);
      await source.linear(pass, { id: 'layers.0.first', rows, x, out: ffn, residual: null });
      await source.sparseLinear(pass, {
        id: 'layers.0.second',
        rows,
        x: ffn,
        out: span('hidden-0', rows, hiddenSize),
        residual: null,
      });
    },
    close(): void {
      for (const { buffer } of spans.values()) backend.release(buffer);
      spans.clear();
    },
  };
}
