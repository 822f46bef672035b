import { NumericsError } from '../../base/errors.js';
import { narrowF16, widenStored } from '../../base/half.js';
import type { AttentionOp, KvLayer, StoreKvOp } from '../ops.js';
import { blockDot, blockSum } from './block-sum.js';
import { exponentials } from './elementwise.js';
import type { OracleMemory } from './oracle-memory.js';

const f = Math.fround;

export function storeKv(memory: OracleMemory, op: StoreKvOp, label: string): void {
  const { kvHeads, headDim, capacity } = op.cache;
  const places = memory.integers(op.positions);
  const keys = memory.floats(op.keys);
  const values = memory.floats(op.values);
  const keyCache = cacheWriter(memory, op.cache, 'keys', label);
  const valueCache = cacheWriter(memory, op.cache, 'values', label);
  for (let t = 0; t < op.rows; t++) {
    const slot = places[2 * t]!;
    const position = places[2 * t + 1]!;
    for (let head = 0; head < kvHeads; head++) {
      const plane = slot * kvHeads + head;
      for (let i = 0; i < headDim; i++) {
        const from = (t * kvHeads + head) * headDim + i;
        keyCache((plane * headDim + i) * capacity + position, keys[from]!);
        valueCache((plane * capacity + position) * headDim + i, values[from]!);
      }
    }
  }
}

function cacheWriter(
  memory: OracleMemory,
  cache: KvLayer,
  part: 'keys' | 'values',
  label: string,
): (index: number, value: number) => void {
  if (cache.type === 'f32') {
    const floats = memory.floats(cache[part]);
    return (index, value) => {
      floats[index] = value;
    };
  }
  const bytes = memory.bytes(cache[part]);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  return (index, value) => {
    const half = narrowF16(value);
    if ((half & 0x7fff) === 0x7c00 && Number.isFinite(value)) {
      throw new NumericsError(
        'kv-overflow',
        `Cannot store ${part} at "${label}": ${value} is too large for F16, use --kv f32`,
        { label, value },
      );
    }
    halves[index] = half;
  };
}

export function attention(memory: OracleMemory, op: AttentionOp): void {
  const { kvHeads, headDim, capacity, type } = op.cache;
  const places = memory.integers(op.positions);
  const query = memory.floats(op.query);
  const out = memory.floats(op.out);
  const keys = widenStored(type, memory.bytes(op.cache.keys));
  const values = widenStored(type, memory.bytes(op.cache.values));
  const scale = f(op.scale);
  const key = new Float32Array(headDim);
  for (let t = 0; t < op.rows; t++) {
    const slot = places[2 * t]!;
    const count = places[2 * t + 1]! + 1;
    const weights = new Float32Array(count);
    for (let head = 0; head < op.heads; head++) {
      const plane = slot * kvHeads + Math.floor(head / (op.heads / kvHeads));
      const start = (t * op.heads + head) * headDim;
      for (let p = 0; p < count; p++) {
        for (let i = 0; i < headDim; i++) key[i] = keys[(plane * headDim + i) * capacity + p]!;
        weights[p] = f(blockDot(query, start, key, 0, headDim, 0) * scale);
      }
      exponentials(weights, greatest(weights));
      const denominator = blockSum(count, (p) => weights[p]!);
      for (let i = 0; i < headDim; i++) {
        const value = (p: number): number => values[(plane * capacity + p) * headDim + i]!;
        out[start + i] = f(blockSum(count, (p) => f(weights[p]! * value(p))) / denominator);
      }
    }
  }
}

function greatest(scores: Float32Array): number {
  let m = scores[0]!;
  for (const score of scores) if (score > m) m = score;
  return m;
}
