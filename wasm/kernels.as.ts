// The CPU kernels for WebAssembly SIMD: every thread walks the same program, does its share of each op, and meets
// the others before the next. Results depend on docs/numerics.md alone, never on who did which share.

import { attention } from './attention.as';
import { readCeiling } from './ceiling.as';
import { compact } from './compact.as';
import { barrier, failedBy, setThread } from './control.as';
import { activate, add, gatedProduct, gather, rope, storeKv } from './elementwise.as';
import { activeInputs, activeOutputs, linear } from './linear.as';
import { certify, roundInput } from './low-bit.as';
import { norm } from './norm.as';
import {
  ACTIVATE,
  ACTIVE_INPUTS,
  ACTIVE_OUTPUTS,
  ADD,
  ATTENTION,
  CERTIFY,
  COMPACT,
  GATED_PRODUCT,
  GATHER,
  LINEAR,
  NORM,
  OP_BYTES,
  QUANTISED_LINEAR,
  READ_CEILING,
  ROPE,
  ROUND_INPUT,
  STORE_KV,
  integer,
} from './program.as';
import { quantisedLinear } from './quantised.as';

/** Called once by each thread, with an area of the memory that is its own. */
export function start(thread: i32, threads: i32, scratch: usize): void {
  setThread(thread, threads, scratch);
}

/** Runs `count` ops, or those up to the first that fails, with all threads. An unknown opcode traps. */
export function run(program: usize, count: i32): void {
  for (let index = 0; index < count; index++) {
    runOp(program + <usize>index * OP_BYTES, index);
    barrier();
    if (failedBy(index)) return;
  }
}

function runOp(op: usize, index: i32): void {
  switch (integer(op, 0)) {
    case GATHER:
      return gather(op, index);
    case LINEAR:
      return linear(op, index);
    case QUANTISED_LINEAR:
      return quantisedLinear(op, index);
    case COMPACT:
      return compact(op);
    case ACTIVE_INPUTS:
      return activeInputs(op, index);
    case ACTIVE_OUTPUTS:
      return activeOutputs(op, index);
    case ACTIVATE:
      return activate(op);
    case GATED_PRODUCT:
      return gatedProduct(op);
    case ADD:
      return add(op);
    case NORM:
      return norm(op);
    case ROPE:
      return rope(op);
    case STORE_KV:
      return storeKv(op, index);
    case ATTENTION:
      return attention(op, index);
    case ROUND_INPUT:
      return roundInput(op, index);
    case CERTIFY:
      return certify(op);
    case READ_CEILING:
      return readCeiling(op, index);
    default:
      unreachable();
  }
}
