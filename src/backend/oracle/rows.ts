import { DefectError } from '../../base/errors.js';
import { type CompactOp, type GatherOp, type GreedyOp, noGreedyId, type RopeOp } from '../ops.js';
import type { OracleMemory } from './oracle-memory.js';
import { storedRows } from './stored-rows.js';

const f = Math.fround;

export function gather(memory: OracleMemory, op: GatherOp): void {
  const ids = memory.integers(op.ids);
  const out = memory.floats(op.out);
  const reach = op.columns === 0 ? 0 : (op.columns - 1) * op.columnStride + 1;
  const table = storedRows(memory, op.table, op.type, op.rowStride, reach);
  for (let t = 0; t < op.rows; t++) {
    const id = ids[t]!;
    if (id < 0 || id >= op.tableRows) {
      throw new DefectError(`Row ${id} lies outside a table of ${op.tableRows}`, { id, rows: op.tableRows });
    }
    const row = table(id);
    for (let c = 0; c < op.columns; c++) out[t * op.columns + c] = row[c * op.columnStride]!;
  }
}

export function compact(memory: OracleMemory, op: CompactOp): void {
  const x = memory.floats(op.x);
  const active = memory.integers(op.active);
  let count = 0;
  for (let column = 0; column < op.width; column++) {
    let used = false;
    for (let t = 0; t < op.rows && !used; t++) used = x[t * op.width + column]! !== 0;
    if (used) active[1 + count++] = column;
  }
  active[0] = count;
}

export function greedy(memory: OracleMemory, op: GreedyOp): void {
  const x = memory.floats(op.x);
  const out = memory.integers(op.out);
  for (let t = 0; t < op.rows; t++) {
    const row = x.subarray(t * op.width, (t + 1) * op.width);
    let best = 0;
    for (let id = 1; id < op.width; id++) if (row[id]! > row[best]!) best = id;
    out[t] = row.every(Number.isFinite) ? best : noGreedyId | 0;
  }
}

export function rope(memory: OracleMemory, op: RopeOp): void {
  const x = memory.floats(op.x);
  const places = memory.integers(op.positions);
  const cosines = memory.floats(op.cosines);
  const sines = memory.floats(op.sines);
  const half = op.rotary / 2;
  for (let t = 0; t < op.rows; t++) {
    const table = places[2 * t + 1]! * half;
    for (let head = 0; head < op.heads; head++) {
      const start = (t * op.heads + head) * op.headDim;
      for (let i = 0; i < half; i++) {
        const first = x[start + i]!;
        const second = x[start + half + i]!;
        const c = cosines[table + i]!;
        const s = sines[table + i]!;
        x[start + i] = f(f(first * c) - f(second * s));
        x[start + half + i] = f(f(second * c) + f(first * s));
      }
    }
  }
}
