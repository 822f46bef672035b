import type { NormOp } from '../ops.js';
import { blockSum } from './block-sum.js';
import type { OracleMemory } from './oracle-memory.js';

const f = Math.fround;

export function norm(memory: OracleMemory, op: NormOp): void {
  const x = memory.floats(op.x);
  const out = memory.floats(op.out);
  const gamma = op.gamma === null ? null : memory.floats(op.gamma);
  const beta = op.beta === null ? null : memory.floats(op.beta);
  const epsilon = f(op.epsilon);
  const n = op.width;
  for (let t = 0; t < op.rows; t++) {
    const row = x.slice(t * n, (t + 1) * n); // a copy, because out may be x
    if (op.norm === 'layer') {
      const mean = f(blockSum(n, (i) => row[i]!) / n);
      for (let i = 0; i < n; i++) row[i] = f(row[i]! - mean);
    }
    const meanSquare = f(blockSum(n, (i) => f(row[i]! * row[i]!)) / n);
    const r = f(1 / f(Math.sqrt(f(meanSquare + epsilon))));
    for (let i = 0; i < n; i++) {
      let y = f(row[i]! * r);
      if (gamma !== null) y = f(y * gamma[i]!);
      if (beta !== null) y = f(y + beta[i]!);
      out[t * n + i] = y;
    }
  }
}
