import { takeTicket, threads } from './control.as';
import { FEW_OUTPUTS, FEW_ROWS, fewRows } from './few.as';
import { productTile } from './product.as';
import {
  describeActiveInputs,
  describeActiveOutputs,
  describeLinear,
  outputMajor,
  outputs,
  rows,
  type,
} from './projection.as';
import { TYPE_BF16, TYPE_F32 } from './program.as';
import { inputMajorRange, outputMajorRange } from './vector.as';

export function linear(op: usize, opIndex: i32): void {
  describeLinear(op);
  run(opIndex);
}

export function activeInputs(op: usize, opIndex: i32): void {
  describeActiveInputs(op);
  run(opIndex);
}

export function activeOutputs(op: usize, opIndex: i32): void {
  describeActiveOutputs(op);
  run(opIndex);
}

function run(opIndex: i32): void {
  if (type == TYPE_F32) runTyped<f32>(opIndex);
  else if (type == TYPE_BF16) runTyped<i16>(opIndex);
  else runTyped<u16>(opIndex);
}

function runTyped<W>(opIndex: i32): void {
  if (rows == 1) {
    // One long piece a thread where the matrix is input-major: a row's part in it should fill a page, for the
    // processor's prefetching starts anew with every page.
    const width = outputMajor ? pieceWidth(16, 64, 4) : pieceWidth(16, 2048, 1);
    for (;;) {
      const first = takeTicket(opIndex) * width;
      if (first >= outputs) return;
      const count = min<i32>(width, outputs - first);
      if (outputMajor) outputMajorRange<W>(first, count);
      else inputMajorRange<W>(first, count);
    }
  }
  if (rows <= FEW_ROWS && !outputMajor) {
    const width = pieceWidth(16, FEW_OUTPUTS, 4);
    for (;;) {
      const first = takeTicket(opIndex) * width;
      if (first >= outputs) return;
      fewRows<W>(first, min<i32>(width, outputs - first));
    }
  }
  const width = pieceWidth(8, 256, 4);
  const pieces = (outputs + width - 1) / width;
  const chunks = (rows + 255) / 256;
  for (;;) {
    const ticket = takeTicket(opIndex);
    if (ticket >= pieces * chunks) return;
    const first = (ticket / chunks) * width;
    const row = (ticket % chunks) * 256;
    productTile<W>(first, min<i32>(width, outputs - first), row, min<i32>(256, rows - row));
  }
}

/** Outputs of one piece of work: a multiple of `step` up to `largest`, about `pieces` pieces a thread. */
// @ts-ignore: decorator
@inline
function pieceWidth(step: i32, largest: i32, pieces: i32): i32 {
  const count = threads() == 1 ? 1 : pieces * threads();
  const width = (outputs + count - 1) / count;
  return max<i32>(step, min<i32>(largest, ((width + step - 1) / step) * step));
}
