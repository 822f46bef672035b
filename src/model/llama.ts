import type { Pass } from '../backend/pass.js';
import { isSparse, type LlamaConfig } from '../checkpoint/model-config.js';
import type { Span } from '../memory/buffers.js';
import type { ForwardBatch } from './batch.js';
import {
  chosenOf,
  emitActivation,
  emitAttention,
  emitGreedy,
  emitNorm,
  emitSelection,
  ResidualStream,
} from './layer-ops.js';
import type { Model, ModelParts } from './model.js';
import { floatRows, limitsOf, placeRows, rowSpan, tokenIds } from './rows.js';

type LlamaParts = ModelParts<LlamaConfig>;

/**
 * The Llama family, as transformers defines Llama, Qwen2, Nemotron and Arcee: RMS or layer norm before each block,
 * grouped-query attention with rotary positions (of a part of each head in Nemotron), a gated FFN
 * `second(activation(gate x) * (up x))` or a plain one `second(activation(first x))`, with or without biases.
 * The rotary table is in the workspace already.
 */
export function llamaModel(parts: LlamaParts, ropeTableDigest: string): Model {
  return {
    description: parts.description,
    limits: limitsOf(parts),
    chosen: chosenOf(parts),
    ropeTableDigest,
    forward: (pass, batch) => compute(parts, pass, batch),
    place: (batch) => {
      placeRows(parts, batch);
      parts.source.lookUp('token-embedding', tokenIds(batch));
    },
  };
}

async function compute(parts: LlamaParts, pass: Pass, batch: ForwardBatch): Promise<Span> {
  placeRows(parts, batch);
  const rows = batch.rows.length;
  const stream = new ResidualStream(parts, rows);
  await parts.source.gather(pass, {
    id: 'token-embedding',
    ids: tokenIds(batch),
    out: stream.current,
  });
  for (let layer = 0; layer < parts.config.layers; layer++) {
    await attend(parts, pass, layer, rows, stream);
    await feedForward(parts, pass, layer, rows, stream);
  }
  return head(parts, pass, batch, stream);
}

async function attend(
  parts: LlamaParts,
  pass: Pass,
  layer: number,
  rows: number,
  stream: ResidualStream,
): Promise<void> {
  const { source, workspace, config } = parts;
  const { heads, kvHeads, headDim } = config;
  const at = `layers.${layer}`;
  const x = floatRows(workspace.input, rows, config.hiddenSize);
  norm(parts, pass, `${at}.attention-norm`, rows, stream.current, x);
  const query = floatRows(workspace.query, rows, heads * headDim);
  const key = floatRows(workspace.key, rows, kvHeads * headDim);
  const value = floatRows(workspace.value, rows, kvHeads * headDim);
  await source.linear(pass, { id: `${at}.query`, rows, x, out: query, residual: null });
  await source.linear(pass, { id: `${at}.key`, rows, x, out: key, residual: null });
  await source.linear(pass, { id: `${at}.value`, rows, x, out: value, residual: null });
  rotate(parts, pass, `${at}.query-rotation`, rows, heads, query);
  rotate(parts, pass, `${at}.key-rotation`, rows, kvHeads, key);
  await source.linear(pass, {
    id: `${at}.output`,
    rows,
    x: emitAttention(parts, pass, layer, rows),
    out: stream.spare,
    residual: stream.current,
  });
  stream.advance();
}

function rotate(parts: LlamaParts, pass: Pass, label: string, rows: number, heads: number, x: Span): void {
  pass.emit(label, {
    kind: 'rope',
    rows,
    heads,
    headDim: parts.config.headDim,
    rotary: parts.config.rotary,
    positions: rowSpan(parts, rows),
    cosines: parts.workspace.cosines!,
    sines: parts.workspace.sines!,
    x,
  });
}

async function feedForward(
  parts: LlamaParts,
  pass: Pass,
  layer: number,
  rows: number,
  stream: ResidualStream,
): Promise<void> {
  const { source, workspace, config } = parts;
  const at = `layers.${layer}`;
  const sparse = isSparse(config.activation);
  const x = floatRows(workspace.input, rows, config.hiddenSize);
  norm(parts, pass, `${at}.ffn-norm`, rows, stream.current, x);
  const active = floatRows(workspace.ffn, rows, config.ffnSize);
  const first = { id: `${at}.${config.gated ? 'gate' : 'first'}`, rows, x, out: active, residual: null };
  await source.linear(pass, first);
  emitActivation(parts, pass, `${at}.activation`, active);
  if (config.gated) {
    // Where the gate is 0 `up` keeps what earlier passes left: the product below does not read it there.
    const up = floatRows(workspace.up!, rows, config.ffnSize);
    const request = { id: `${at}.up`, rows, x, out: up, residual: null };
    await (sparse ? source.gatedLinear(pass, { ...request, gate: active }) : source.linear(pass, request));
    pass.emit(`${at}.gated-product`, {
      kind: 'gated-product',
      count: rows * config.ffnSize,
      gate: active,
      up,
    });
  }
  const second = { id: `${at}.second`, rows, x: active, out: stream.spare, residual: stream.current };
  await (sparse ? source.sparseLinear(pass, second) : source.linear(pass, second));
  stream.advance();
}

/** Logits of the wanted rows. F32 [logits rows, vocabSize]. */
async function head(
  parts: LlamaParts,
  pass: Pass,
  batch: ForwardBatch,
  stream: ResidualStream,
): Promise<Span> {
  const { source, workspace, config } = parts;
  const rows = batch.logitsRows.length;
  const logits = floatRows(workspace.logits, rows, config.vocabSize);
  if (rows === 0) return logits;
  const x = emitSelection(parts, pass, stream.current, batch.rows.length, rows);
  norm(parts, pass, 'final-norm', rows, x, x);
  await source.linear(pass, { id: 'head', rows, x, out: logits, residual: null });
  emitGreedy(parts, pass, logits, rows);
  return logits;
}

function norm(parts: LlamaParts, pass: Pass, id: string, rows: number, x: Span, out: Span): void {
  const kind = parts.config.norm;
  emitNorm(parts, pass, { id, kind, gamma: true, beta: kind === 'layer', rows, x, out });
}
