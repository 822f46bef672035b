import type { PlacedOp } from '../ops.js';
import { attention, storeKv } from './attention.js';
import { certify } from './certify.js';
import { activate, add, gatedProduct } from './elementwise.js';
import { guessRows, heldInputs, heldOutputs, retainRows } from './held-rows.js';
import { activeInputs, activeOutputs, linear } from './linear.js';
import { norm } from './norm.js';
import type { OracleMemory } from './oracle-memory.js';
import { quantisedLinear } from './quantised-linear.js';
import { roundInput } from './round-input.js';
import { compact, gather, greedy, rope } from './rows.js';

/** Runs one op to its end. */
export function runOp(memory: OracleMemory, { op, label }: PlacedOp): void {
  switch (op.kind) {
    case 'gather':
      gather(memory, op);
      break;
    case 'linear':
      linear(memory, op);
      break;
    case 'quantised-linear':
      quantisedLinear(memory, op);
      break;
    case 'compact':
      compact(memory, op);
      break;
    case 'active-inputs':
      activeInputs(memory, op);
      break;
    case 'active-outputs':
      activeOutputs(memory, op);
      break;
    case 'retain-rows':
      retainRows(memory, op);
      break;
    case 'guess-rows':
      guessRows(memory, op);
      break;
    case 'held-inputs':
      heldInputs(memory, op);
      break;
    case 'held-outputs':
      heldOutputs(memory, op);
      break;
    case 'round-input':
      roundInput(memory, op);
      break;
    case 'certify':
      certify(memory, op);
      break;
    case 'activate':
      activate(memory, op);
      break;
    case 'gated-product':
      gatedProduct(memory, op);
      break;
    case 'add':
      add(memory, op);
      break;
    case 'norm':
      norm(memory, op);
      break;
    case 'rope':
      rope(memory, op);
      break;
    case 'store-kv':
      storeKv(memory, op, label);
      break;
    case 'attention':
      attention(memory, op);
      break;
    case 'greedy':
      greedy(memory, op);
      break;
  }
}
