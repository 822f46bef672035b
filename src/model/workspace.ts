import type { ModelConfig } from '../checkpoint/model-config.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import {
  type AllocationRequest,
  type Allocator,
  type DeviceBuffer,
  type Span,
  spanOf,
  subspan,
} from '../memory/buffers.js';

/** What a workspace is made for. */
export interface WorkspaceLimits {
  /** Rows (tokens) of a pass. */
  readonly maxRows: number;
  /** Rows of a pass whose logits are wanted. */
  readonly maxLogitsRows: number;
  /** Positions of a slot of the KV cache. */
  readonly capacity: number;
  /** `Backend.parallelism`. */
  readonly parallelism: number;
}

/** Every byte that forward passes need beside weights and KV; known before anything is allocated. */
export interface WorkspacePlan {
  readonly config: ModelConfig;
  readonly limits: WorkspaceLimits;
  readonly requests: readonly AllocationRequest[];
}

/**
 * Spans that forward passes work in, allocated once and zero at first. F32 unless said otherwise; T is `maxRows`, L
 * is `maxLogitsRows`.
 */
export interface Workspace {
  readonly limits: WorkspaceLimits;
  readonly buffers: readonly DeviceBuffer[];
  readonly rows: Span; // Int32 [T, 2]: slot, position
  readonly logitsRows: Span; // Int32 [L]
  /** Two buffers of the residual stream: a sum is written to the one that it does not read. */
  readonly hidden: readonly [Span, Span]; // [T, hiddenSize]
  readonly input: Span; // [T, max(hiddenSize, embeddingSize)]: what a projection reads
  readonly query: Span; // [T, heads, headDim]
  readonly key: Span; // [T, kvHeads, headDim]
  readonly value: Span; // [T, kvHeads, headDim]
  readonly attended: Span; // [T, heads, headDim]
  /** First projection or gate; shares its bytes with query, key, value and attended, which are done before it. */
  readonly ffn: Span; // [T, ffnSize]
  readonly up: Span | null; // [T, ffnSize], gated models
  readonly scores: Span; // [parallelism, capacity]
  readonly selected: Span; // [L, hiddenSize]
  readonly projected: Span | null; // [L, embeddingSize], models with project-out
  readonly logits: Span; // [L, vocabSize]
  readonly cosines: Span | null; // [capacity, rotary / 2], rotary models
  readonly sines: Span | null; // [capacity, rotary / 2]
}

type BufferName =
  | 'rows'
  | 'logits-rows'
  | 'hidden-0'
  | 'hidden-1'
  | 'input'
  | 'layer'
  | 'up'
  | 'scores'
  | 'selected'
  | 'projected'
  | 'logits'
  | 'cosines'
  | 'sines';

const floatBytes = 4;
/** Vector loads are widest at this alignment; allocations have it already. */
const partAlignment = 64;

/** Lists the buffers of a workspace: pure, for the planner. */
export function planWorkspace(description: ModelDescription, limits: WorkspaceLimits): WorkspacePlan {
  const requests = bufferSizes(description.config, limits).map(([name, byteLength]) => ({
    label: `workspace.${name}`,
    cause: name === 'scores' || name === 'cosines' || name === 'sines' ? 'workspace' : 'activations',
    byteLength,
  })) satisfies AllocationRequest[];
  return { config: description.config, limits, requests };
}

/** Allocates what the plan lists; releases all of it again when one allocation fails. */
export function openWorkspace(allocator: Allocator, plan: WorkspacePlan): Workspace {
  const held = new Map<string, DeviceBuffer>();
  try {
    for (const request of plan.requests) held.set(request.label, allocator.allocate(request));
  } catch (error) {
    for (const buffer of held.values()) allocator.release(buffer);
    throw error;
  }
  const find = (name: BufferName): Span | null => {
    const buffer = held.get(`workspace.${name}`);
    return buffer === undefined ? null : spanOf(buffer);
  };
  const get = (name: BufferName): Span => find(name)!;
  const { config } = plan;
  const { maxRows } = plan.limits;
  const layer = get('layer');
  const [query, key, value, attended] = attentionParts(config, maxRows);
  return {
    limits: plan.limits,
    buffers: [...held.values()],
    rows: get('rows'),
    logitsRows: get('logits-rows'),
    hidden: [get('hidden-0'), get('hidden-1')],
    input: get('input'),
    query: subspan(layer, query.offset, query.byteLength),
    key: subspan(layer, key.offset, key.byteLength),
    value: subspan(layer, value.offset, value.byteLength),
    attended: subspan(layer, attended.offset, attended.byteLength),
    ffn: subspan(layer, 0, maxRows * config.ffnSize * floatBytes),
    up: find('up'),
    scores: get('scores'),
    selected: get('selected'),
    projected: find('projected'),
    logits: get('logits'),
    cosines: find('cosines'),
    sines: find('sines'),
  };
}

/** Gives a workspace's buffers back. */
export function closeWorkspace(allocator: Allocator, workspace: Workspace): void {
  for (const buffer of workspace.buffers) allocator.release(buffer);
}

function bufferSizes(config: ModelConfig, limits: WorkspaceLimits): [BufferName, number][] {
  const { maxRows, maxLogitsRows, capacity, parallelism } = limits;
  const { hiddenSize, ffnSize, vocabSize } = config;
  const embeddingSize = config.family === 'opt' ? config.embeddingSize : hiddenSize;
  const attention = attentionParts(config, maxRows).at(-1)!;
  const list: [BufferName, number][] = [
    ['rows', maxRows * 2 * 4],
    ['logits-rows', maxLogitsRows * 4],
    ['hidden-0', maxRows * hiddenSize * floatBytes],
    ['hidden-1', maxRows * hiddenSize * floatBytes],
    ['input', maxRows * Math.max(hiddenSize, embeddingSize) * floatBytes],
    ['layer', Math.max(attention.offset + attention.byteLength, maxRows * ffnSize * floatBytes)],
    ['scores', parallelism * capacity * floatBytes],
    ['selected', maxLogitsRows * hiddenSize * floatBytes],
    ['logits', maxLogitsRows * vocabSize * floatBytes],
  ];
  if (config.family === 'opt') {
    if (embeddingSize !== hiddenSize) list.push(['projected', maxLogitsRows * embeddingSize * floatBytes]);
    return list;
  }
  if (config.gated) list.push(['up', maxRows * ffnSize * floatBytes]);
  const table = capacity * (config.rotary / 2) * floatBytes;
  list.push(['cosines', table], ['sines', table]);
  return list;
}

interface Part {
  readonly offset: number;
  readonly byteLength: number;
}

/** Query, key, value and attended, one behind the other. */
function attentionParts(config: ModelConfig, maxRows: number): [Part, Part, Part, Part] {
  const { heads, kvHeads, headDim } = config;
  let offset = 0;
  const place = (count: number): Part => {
    const part = { offset, byteLength: maxRows * count * headDim * floatBytes };
    offset += Math.ceil(part.byteLength / partAlignment) * partAlignment;
    return part;
  };
  return [place(heads), place(kvHeads), place(kvHeads), place(heads)];
}
