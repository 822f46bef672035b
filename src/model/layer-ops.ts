import type { Pass } from '../backend/pass.js';
import type { ModelConfig } from '../checkpoint/model-config.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { ModelParts } from './model.js';
import { floatRows, rowSpan } from './rows.js';

/** The residual stream of a pass: what it holds now, and the buffer that the next sum goes to. */
export class ResidualStream {
  #current: Span;
  #spare: Span;

  constructor(parts: ModelParts, rows: number) {
    const [first, second] = parts.workspace.hidden;
    this.#current = floatRows(first, rows, parts.config.hiddenSize);
    this.#spare = floatRows(second, rows, parts.config.hiddenSize);
  }

  get current(): Span {
    return this.#current;
  }

  get spare(): Span {
    return this.#spare;
  }

  /** What was written to the spare buffer is the stream now. */
  advance(): void {
    [this.#current, this.#spare] = [this.#spare, this.#current];
  }
}

/** Emits a norm by the id of its vectors. `x` and `out` may be the same. */
export function emitNorm(
  parts: ModelParts,
  pass: Pass,
  norm: {
    id: string;
    kind: 'layer' | 'rms';
    gamma: boolean;
    beta: boolean;
    rows: number;
    x: Span;
    out: Span;
  },
): void {
  pass.emit(norm.id, {
    kind: 'norm',
    norm: norm.kind,
    rows: norm.rows,
    width: parts.config.hiddenSize,
    epsilon: Math.fround(parts.config.normEpsilon),
    x: norm.x,
    gamma: norm.gamma ? parts.source.vector(`${norm.id}.gamma`) : null,
    beta: norm.beta ? parts.source.vector(`${norm.id}.beta`) : null,
    out: norm.out,
  });
}

/** Emits the activation of a first projection or gate, in place. */
export function emitActivation(parts: ModelParts, pass: Pass, label: string, x: Span): void {
  pass.emit(label, {
    kind: 'activate',
    count: x.byteLength / 4,
    activation: parts.config.activation,
    threshold: Math.fround(parts.config.activationThreshold),
    x,
  });
}

/** Emits the store of a layer's new keys and values and the attention that reads them back. */
export function emitAttention(parts: ModelParts, pass: Pass, layer: number, rows: number): Span {
  const { workspace, cache, config } = parts;
  const { heads, kvHeads, headDim } = config;
  const positions = rowSpan(parts, rows);
  const out = floatRows(workspace.attended, rows, heads * headDim);
  const layerCache = cache.layer(layer);
  pass.emit(`layers.${layer}.store-kv`, {
    kind: 'store-kv',
    rows,
    positions,
    keys: floatRows(workspace.key, rows, kvHeads * headDim),
    values: floatRows(workspace.value, rows, kvHeads * headDim),
    cache: layerCache,
  });
  pass.emit(`layers.${layer}.attention`, {
    kind: 'attention',
    rows,
    heads,
    positions,
    scale: attentionScale(config),
    query: floatRows(workspace.query, rows, heads * headDim),
    cache: layerCache,
    scratch: workspace.scores,
    out,
  });
  return out;
}

/** 1 / sqrt(headDim) by binary64 division and square root, rounded once to binary32. */
export function attentionScale(config: ModelConfig): number {
  return Math.fround(1 / Math.sqrt(config.headDim));
}

/** Label of the op from which on the rows are those whose logits are wanted. */
export const selectionLabel = 'logits-rows';

/** Emits the choice of greedy tokens where rows of logits come to the host later; U32 [logits rows] in `chosen`. */
export function emitGreedy(parts: ModelParts, pass: Pass, logits: Span, rows: number): void {
  if (parts.backend.hostTier?.readLater === undefined) return;
  const out = subspan(chosenOf(parts), 0, rows * 4);
  pass.emit('greedy', { kind: 'greedy', rows, width: parts.config.vocabSize, x: logits, out });
}

/** Shares its bytes with the rows that the head has read before. */
export function chosenOf({ workspace }: ModelParts): Span {
  return subspan(workspace.selected, 0, workspace.limits.maxLogitsRows * 4);
}

/** Emits the selection of the rows whose logits are wanted; F32 [logits rows, hiddenSize]. */
export function emitSelection(
  parts: ModelParts,
  pass: Pass,
  hidden: Span,
  rows: number,
  logitsRows: number,
): Span {
  const { hiddenSize } = parts.config;
  const out = floatRows(parts.workspace.selected, logitsRows, hiddenSize);
  pass.emit(selectionLabel, {
    kind: 'gather',
    rows: logitsRows,
    columns: hiddenSize,
    table: hidden,
    tableRows: rows,
    type: 'f32',
    rowStride: hiddenSize,
    columnStride: 1,
    ids: subspan(parts.workspace.logitsRows, 0, logitsRows * 4),
    out,
  });
  return out;
}
