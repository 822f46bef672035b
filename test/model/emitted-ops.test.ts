import { describe, expect, it } from 'vitest';
import type { Op } from '../../src/backend/ops.js';
import type { Span } from '../../src/memory/buffers.js';
import { closeWorkspace, openWorkspace, planWorkspace } from '../../src/model/workspace.js';
import { Harness } from './harness.js';
import { RecordingBackend } from './recording-backend.js';
import { llamaConfig, optConfig, tinyWeights } from './tiny-models.js';

const configs = {
  'opt, pre-norm': optConfig(),
  'opt, post-norm, projected': optConfig({ preNorm: false, finalNorm: false, embeddingSize: 24 }),
  'opt, projected wide': optConfig({ embeddingSize: 72, bias: false, affineNorm: false }),
  'opt, gelu': optConfig({ activation: 'gelu' }),
  'llama, gated relu': llamaConfig({ qkvBias: true, outputBias: true, ffnBias: true }),
  'llama, silu, wide heads': llamaConfig({ activation: 'silu', headDim: 40, rotary: 40 }),
  nemotron: llamaConfig({ norm: 'layer', gated: false, activation: 'relu2', rotary: 6, tied: false }),
};

const rows = [0, 1, 2, 3, 4].map((position) => ({ slot: 0, position, tokenId: position }));

async function recorded(config: (typeof configs)[keyof typeof configs], mode: 'dense' | 'active') {
  const backend = new RecordingBackend();
  const weights = tinyWeights(config, 1);
  const harness = Harness.tiny(backend, weights, { capacity: 16, maxRows: 6, mode });
  const allocations = backend.requests.length;
  const logits = await harness.run(rows, [1, 4]);
  expect(backend.requests.length).toBe(allocations); // nothing is allocated in a pass
  return { backend, harness, weights, logits };
}

describe('a pass', () => {
  for (const [name, config] of Object.entries(configs)) {
    it(`asks for every weight once, in the description's order: ${name}`, async () => {
      const { harness, weights } = await recorded(config, 'dense');
      const { tables, matrices } = weights.description;
      const wanted = matrices.map((matrix) => matrix.id);
      // OPT looks up positions after the projection of its token embeddings.
      wanted.splice(0, 0, 'token-embedding');
      if (tables.length > 1) wanted.splice(wanted.indexOf('layers.0.query'), 0, 'position-embedding');
      expect(harness.source.requested).toEqual(wanted);
    });

    it(`labels its ops uniquely: ${name}`, async () => {
      const { backend } = await recorded(config, 'dense');
      const labels = backend.ops.map((placed) => placed.label);
      expect(new Set(labels).size).toBe(labels.length);
      expect(labels).toContain('layers.1.attention');
      expect(labels).toContain('layers.0.second');
    });

    for (const mode of ['dense', 'active'] as const) {
      it(`never writes where it reads, except in place, and stays in its spans: ${name}, ${mode}`, async () => {
        const { backend } = await recorded(config, mode);
        for (const { label, op } of backend.ops) {
          const { out, inPlace, inputs } = operandsOf(op);
          for (const input of inputs) {
            const same = overlaps(out, input);
            expect({ label, aliased: same && !(inPlace && identical(out, input)) }).toEqual({
              label,
              aliased: false,
            });
          }
        }
      });
    }
  }

  it('runs head and final norm on the wanted rows alone, and not at all where none is wanted', async () => {
    const backend = new RecordingBackend();
    const harness = Harness.tiny(backend, tinyWeights(optConfig({ embeddingSize: 24 }), 1), {
      capacity: 16,
      maxRows: 6,
    });
    await harness.run(rows, [4]);
    const find = (label: string) => backend.ops.filter((placed) => placed.label === label);
    for (const label of ['final-norm', 'project-out', 'head']) {
      expect(find(label).map((placed) => (placed.op as { rows: number }).rows)).toEqual([1]);
    }
    await harness.run(rows, []);
    expect(find('head')).toHaveLength(1);
    expect(find('layers.1.second')).toHaveLength(2);
  });

  it('asks for active rows where the activation gives zeros, for all where it does not', async () => {
    const kinds = async (config: (typeof configs)[keyof typeof configs]) => {
      const { backend } = await recorded(config, 'active');
      return new Map(backend.ops.map((placed) => [placed.label, placed.op.kind]));
    };
    const relu = await kinds(configs['llama, gated relu']);
    expect([relu.get('layers.0.up'), relu.get('layers.0.second')]).toEqual([
      'active-outputs',
      'active-inputs',
    ]);
    const silu = await kinds(configs['llama, silu, wide heads']);
    expect([silu.get('layers.0.up'), silu.get('layers.0.second')]).toEqual(['linear', 'linear']);
    expect((await kinds(configs['opt, gelu'])).get('layers.0.second')).toBe('linear');
    expect((await kinds(configs.nemotron)).get('layers.1.second')).toBe('active-inputs');
  });

  it('scales scores by 1 / sqrt(headDim) rounded to binary32', async () => {
    const { backend } = await recorded(configs['llama, gated relu'], 'dense');
    const attention = backend.ops.find((placed) => placed.op.kind === 'attention')!.op;
    expect(attention.kind === 'attention' && attention.scale).toBe(Math.fround(0.2886751345948129));
  });

  it('queues nothing of a batch that it refuses', async () => {
    const backend = new RecordingBackend();
    const harness = Harness.tiny(backend, tinyWeights(optConfig(), 1), { capacity: 16, maxRows: 6 });
    const writes = backend.writes.length;
    await expect(harness.run([{ slot: 0, position: 16, tokenId: 0 }])).rejects.toThrow('holds 16 positions');
    expect([backend.ops.length, backend.writes.length]).toEqual([0, writes]);
  });
});

describe('a workspace', () => {
  for (const [name, config] of Object.entries(configs)) {
    it(`allocates what its plan lists and gives all of it back: ${name}`, () => {
      const { description } = tinyWeights(config, 1);
      const limits = { maxRows: 5, maxLogitsRows: 2, capacity: 16, parallelism: 3 };
      const plan = planWorkspace(description, limits);
      const backend = new RecordingBackend();
      const workspace = openWorkspace(backend, plan);
      expect(backend.requests).toEqual(plan.requests);
      expect(plan.requests.every((request) => request.byteLength > 0)).toBe(true);
      closeWorkspace(backend, workspace);
      expect(backend.held.size).toBe(0);
    });
  }

  it('holds nothing after an allocation failed', () => {
    const { description } = tinyWeights(configs.nemotron, 1);
    const limits = { maxRows: 5, maxLogitsRows: 2, capacity: 16, parallelism: 3 };
    const plan = planWorkspace(description, limits);
    for (let failFrom = 0; failFrom < plan.requests.length; failFrom++) {
      const backend = new RecordingBackend();
      backend.failFrom = failFrom;
      expect(() => openWorkspace(backend, plan)).toThrow('No memory');
      expect(backend.held.size).toBe(0);
    }
  });

  it('counts its bytes as worked out by hand', () => {
    const { description } = tinyWeights(configs['opt, pre-norm'], 1);
    const limits = { maxRows: 4, maxLogitsRows: 2, capacity: 16, parallelism: 3 };
    const bytes = Object.fromEntries(
      planWorkspace(description, limits).requests.map((request) => [request.label, request.byteLength]),
    );
    expect(bytes).toEqual({
      'workspace.rows': 4 * 2 * 4,
      'workspace.logits-rows': 2 * 4,
      'workspace.hidden-0': 4 * 40 * 4,
      'workspace.hidden-1': 4 * 40 * 4,
      'workspace.input': 4 * 40 * 4,
      'workspace.layer': Math.max(4 * 640, 4 * 140 * 4), // q, k, v, attended: 4 rows x 40 x 4 bytes each
      'workspace.scores': 3 * 16 * 4,
      'workspace.selected': 2 * 40 * 4,
      'workspace.logits': 2 * 61 * 4,
    });
  });
});

interface Operands {
  readonly out: Span;
  readonly inputs: readonly Span[];
  /** The op may write to the very span that it reads. */
  readonly inPlace: boolean;
}

function operandsOf(op: Op): Operands {
  const spans = (...list: (Span | null)[]): Span[] => list.filter((span) => span !== null);
  switch (op.kind) {
    case 'gather':
      return { out: op.out, inputs: spans(op.table, op.ids), inPlace: false };
    case 'linear':
      return { out: op.out, inputs: spans(op.x, op.matrix.span, op.bias, op.residual), inPlace: false };
    case 'quantised-linear':
      return {
        out: op.out,
        inputs: spans(op.x, op.codes, op.scales, op.bias, op.residual),
        inPlace: false,
      };
    case 'compact':
      return { out: op.active, inputs: [op.x], inPlace: false };
    case 'active-inputs':
      return {
        out: op.out,
        inputs: spans(op.x, op.active, op.matrix.span, op.bias, op.residual),
        inPlace: false,
      };
    case 'active-outputs':
      return { out: op.out, inputs: spans(op.x, op.active, op.matrix.span, op.bias), inPlace: false };
    case 'greedy':
      return { out: op.out, inputs: [op.x], inPlace: false };
    case 'retain-rows':
      return { out: op.hits, inputs: [op.active], inPlace: false };
    case 'guess-rows':
      return { out: op.held, inputs: [op.set, op.index.span, op.matrix.span, op.guessed], inPlace: false };
    case 'held-inputs':
      return {
        out: op.out,
        inputs: spans(op.x, op.active, op.index.span, op.held, op.matrix.span, op.bias, op.residual),
        inPlace: false,
      };
    case 'held-outputs':
      return {
        out: op.out,
        inputs: spans(op.x, op.active, op.index.span, op.held, op.matrix.span, op.bias),
        inPlace: false,
      };
    case 'round-input':
      return { out: op.out, inputs: [op.x, op.copy.span], inPlace: false };
    case 'certify':
      return { out: op.out, inputs: spans(op.input, op.copy.span, op.bias), inPlace: false };
    case 'activate':
      return { out: op.x, inputs: [], inPlace: true };
    case 'gated-product':
      return { out: op.gate, inputs: [op.up], inPlace: false };
    case 'add':
      return { out: op.out, inputs: [op.a, op.b], inPlace: true };
    case 'norm':
      return { out: op.out, inputs: spans(op.x, op.gamma, op.beta), inPlace: true };
    case 'rope':
      return { out: op.x, inputs: [op.positions, op.cosines, op.sines], inPlace: false };
    case 'store-kv':
      return {
        out: op.cache.keys,
        inputs: [op.keys, op.values, op.positions, op.cache.values],
        inPlace: false,
      };
    case 'attention':
      return {
        out: op.out,
        inputs: [op.query, op.positions, op.cache.keys, op.cache.values, op.scratch],
        inPlace: false,
      };
  }
}

function overlaps(a: Span, b: Span): boolean {
  const start = Math.max(a.byteOffset, b.byteOffset);
  const end = Math.min(a.byteOffset + a.byteLength, b.byteOffset + b.byteLength);
  return a.buffer === b.buffer && start < end;
}

function identical(a: Span, b: Span): boolean {
  return a.buffer === b.buffer && a.byteOffset === b.byteOffset && a.byteLength === b.byteLength;
}
