import type { Pass } from '../backend/pass.js';
import { isSparse, type OptConfig } from '../checkpoint/model-config.js';
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
import { floatRows, limitsOf, placeRows, tokenIds } from './rows.js';

type OptParts = ModelParts<OptConfig>;

/**
 * OPT (Zhang et al., 2022), as transformers' `OPTForCausalLM` defines it, in all of its published variants: norms
 * before or after a block (350m), token embeddings narrower than the model with a projection in and out, without
 * biases, norms without gamma and beta, without the norm behind the last layer.
 */
export function optModel(parts: OptParts): Model {
  return {
    description: parts.description,
    limits: limitsOf(parts),
    chosen: chosenOf(parts),
    ropeTableDigest: null,
    forward: (pass, batch) => compute(parts, pass, batch),
    place: (batch) => {
      placeRows(parts, batch);
      parts.source.lookUp('token-embedding', tokenIds(batch));
      parts.source.lookUp('position-embedding', positionIds(parts, batch));
    },
  };
}

async function compute(parts: OptParts, pass: Pass, batch: ForwardBatch): Promise<Span> {
  placeRows(parts, batch);
  const rows = batch.rows.length;
  const stream = new ResidualStream(parts, rows);
  await embed(parts, pass, batch, stream);
  for (let layer = 0; layer < parts.config.layers; layer++) {
    await attend(parts, pass, layer, rows, stream);
    await feedForward(parts, pass, layer, rows, stream);
  }
  return head(parts, pass, batch, stream);
}

function positionIds({ config }: OptParts, batch: ForwardBatch): number[] {
  return batch.rows.map(({ position }) => position + config.positionOffset);
}

/** Token embedding, projected where it is narrower than the model, plus the embedding of the position. */
async function embed(
  parts: OptParts,
  pass: Pass,
  batch: ForwardBatch,
  stream: ResidualStream,
): Promise<void> {
  const { source, workspace, config } = parts;
  const { embeddingSize, hiddenSize } = config;
  const rows = batch.rows.length;
  const tokens = floatRows(workspace.input, rows, embeddingSize);
  await source.gather(pass, {
    id: 'token-embedding',
    ids: tokenIds(batch),
    out: tokens,
  });
  let embedded = tokens;
  if (embeddingSize !== hiddenSize) {
    embedded = stream.current;
    await source.linear(pass, { id: 'project-in', rows, x: tokens, out: embedded, residual: null });
  }
  await source.gather(pass, {
    id: 'position-embedding',
    ids: positionIds(parts, batch),
    out: stream.spare,
  });
  pass.emit('embedding', {
    kind: 'add',
    count: rows * hiddenSize,
    a: embedded,
    b: stream.spare,
    out: stream.spare,
  });
  stream.advance();
}

async function attend(
  parts: OptParts,
  pass: Pass,
  layer: number,
  rows: number,
  stream: ResidualStream,
): Promise<void> {
  const { source, workspace, config } = parts;
  const at = `layers.${layer}`;
  const x = config.preNorm
    ? normed(parts, pass, `${at}.attention-norm`, rows, stream.current)
    : stream.current;
  const width = config.heads * config.headDim;
  for (const role of ['query', 'key', 'value'] as const) {
    const out = floatRows(workspace[role], rows, width);
    await source.linear(pass, { id: `${at}.${role}`, rows, x, out, residual: null });
  }
  await source.linear(pass, {
    id: `${at}.output`,
    rows,
    x: emitAttention(parts, pass, layer, rows),
    out: stream.spare,
    residual: stream.current,
  });
  stream.advance();
  if (!config.preNorm) normInPlace(parts, pass, `${at}.attention-norm`, rows, stream.current);
}

async function feedForward(
  parts: OptParts,
  pass: Pass,
  layer: number,
  rows: number,
  stream: ResidualStream,
): Promise<void> {
  const { source, workspace, config } = parts;
  const at = `layers.${layer}`;
  const x = config.preNorm ? normed(parts, pass, `${at}.ffn-norm`, rows, stream.current) : stream.current;
  const active = floatRows(workspace.ffn, rows, config.ffnSize);
  await source.linear(pass, { id: `${at}.first`, rows, x, out: active, residual: null });
  emitActivation(parts, pass, `${at}.activation`, active);
  const second = {
    id: `${at}.second`,
    rows,
    x: active,
    out: stream.spare,
    residual: stream.current,
  };
  await (isSparse(config.activation) ? source.sparseLinear(pass, second) : source.linear(pass, second));
  stream.advance();
  if (!config.preNorm) normInPlace(parts, pass, `${at}.ffn-norm`, rows, stream.current);
}

/** Logits of the wanted rows: final norm, projection out, head. F32 [logits rows, vocabSize]. */
async function head(parts: OptParts, pass: Pass, batch: ForwardBatch, stream: ResidualStream): Promise<Span> {
  const { source, workspace, config } = parts;
  const rows = batch.logitsRows.length;
  const logits = floatRows(workspace.logits, rows, config.vocabSize);
  if (rows === 0) return logits;
  let x = emitSelection(parts, pass, stream.current, batch.rows.length, rows);
  if (config.finalNorm) normInPlace(parts, pass, 'final-norm', rows, x);
  if (workspace.projected !== null) {
    const out = floatRows(workspace.projected, rows, config.embeddingSize);
    await source.linear(pass, { id: 'project-out', rows, x, out, residual: null });
    x = out;
  }
  await source.linear(pass, { id: 'head', rows, x, out: logits, residual: null });
  emitGreedy(parts, pass, logits, rows);
  return logits;
}

function normed(parts: OptParts, pass: Pass, id: string, rows: number, x: Span): Span {
  const out = floatRows(parts.workspace.input, rows, parts.config.hiddenSize);
  const { affineNorm } = parts.config;
  emitNorm(parts, pass, { id, kind: 'layer', gamma: affineNorm, beta: affineNorm, rows, x, out });
  return out;
}

function normInPlace(parts: OptParts, pass: Pass, id: string, rows: number, x: Span): void {
  const { affineNorm } = parts.config;
  emitNorm(parts, pass, { id, kind: 'layer', gamma: affineNorm, beta: affineNorm, rows, x, out: x });
}
