import type { LinearOp, Op } from '../../src/backend/ops.js';
import type { Span } from '../../src/memory/buffers.js';

/** Where the operands of ops come from. */
export interface OperandRoom {
  room(byteLength: number): Span;
  /** F16 weights. */
  halves(byteLength: number): Span;
  floats(byteLength: number): Span;
  integers(values: readonly number[]): Span;
}

const hidden = 2560;
const ffn = 10_240;
const capacity = 640;

/**
 * Decode layers of OPT-2.7B as the model emits them, one row at a position, each with weights and a cache of its own; the second
 * projection from the rows of active neurons, or `dense`.
 */
export function decodeLayers(
  layers: number,
  position: number,
  operands: OperandRoom,
  dense = false,
): { readonly ops: readonly Op[]; readonly out: Span } {
  const vector = () => operands.room(hidden * 4);
  // Every layer begins from the same stream, so that values stay in range and repeats give the same bytes.
  const begin = operands.floats(hidden * 4);
  const [stream, next, x, attended, query, keys, values] = Array.from({ length: 7 }, vector) as Span[];
  const active = operands.room(ffn * 4);
  const set = operands.room((ffn + 1) * 4);
  const positions = operands.integers([0, position]);
  const linear = (
    from: Span,
    inputs: number,
    out: Span,
    outputs: number,
    residual: Span | null,
  ): LinearOp => ({
    kind: 'linear',
    rows: 1,
    x: from,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: {
      span: operands.halves(inputs * outputs * 2),
      type: 'f16',
      layout: 'input-major',
      rowStride: outputs,
    },
    out,
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: operands.floats(outputs * 4),
    residual,
  });
  const norm = (from: Span): Op => ({
    kind: 'norm',
    norm: 'layer',
    rows: 1,
    width: hidden,
    epsilon: 1e-5,
    x: from,
    gamma: operands.floats(hidden * 4),
    beta: operands.floats(hidden * 4),
    out: x!,
  });
  const fromActive = (): Op[] => [
    { kind: 'compact', rows: 1, width: ffn, x: active, active: set },
    {
      kind: 'active-inputs',
      rows: 1,
      x: active,
      xStride: ffn,
      active: set,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      outputs: hidden,
      matrix: {
        span: operands.halves(ffn * hidden * 2),
        type: 'f16',
        layout: 'input-major',
        rowStride: hidden,
      },
      out: stream!,
      continues: false,
      bias: operands.floats(hidden * 4),
      residual: next!,
    },
  ];
  const layer = (): Op[] => {
    const cache = {
      type: 'f16',
      keys: operands.halves(hidden * capacity * 2),
      values: operands.halves(hidden * capacity * 2),
      slots: 1,
      kvHeads: 32,
      headDim: 80,
      capacity,
    } as const;
    return [
      norm(begin),
      linear(x!, hidden, query!, hidden, null),
      linear(x!, hidden, keys!, hidden, null),
      linear(x!, hidden, values!, hidden, null),
      { kind: 'store-kv', rows: 1, positions, keys: keys!, values: values!, cache },
      {
        kind: 'attention',
        rows: 1,
        heads: 32,
        positions,
        scale: 0.1,
        query: query!,
        cache,
        scratch: operands.room(16 * capacity * 4),
        out: attended!,
      },
      linear(attended!, hidden, next!, hidden, begin),
      norm(next!),
      linear(x!, hidden, active, ffn, null),
      // The most active neurons of random products, about one in thirty.
      { kind: 'activate', count: ffn, activation: 'fatrelu', threshold: 2, x: active },
      ...(dense ? [linear(active, ffn, stream!, hidden, next!)] : fromActive()),
    ];
  };
  return { ops: Array.from({ length: layers }, layer).flat(), out: stream! };
}
