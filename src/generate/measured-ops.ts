import type { Op, PlacedOp } from '../backend/ops.js';
import { type QuantisedType, quantisedLayout } from '../base/quantised-type.js';
import type { StoredType } from '../base/stored-type.js';
import { lowBitFormat } from '../checkpoint/low-bit.js';
import { lowBitLayout } from '../checkpoint/low-bit-layout.js';
import { defaultLowBit } from '../checkpoint/low-bit-plan.js';
import { type Span, subspan } from '../memory/buffers.js';

/** Ops over bytes that nobody has written meaning into, and how many of them they read. */
export interface MeasuredOps {
  readonly ops: readonly PlacedOp[];
  readonly byteLength: number;
}

/** Where measured ops find their operands; all zeros. */
export interface MeasureRoom {
  readonly weights: Span;
  readonly x: Span; // F32, as many as the widest input
  readonly out: Span; // F32, as many as the widest output
  /** What `round-input` would leave for one row of K. */
  readonly rounded: Span;
}

/** A matrix of K inputs and N outputs, as first projections have them. */
export interface MeasuredShape {
  readonly inputs: number;
  readonly outputs: number;
  readonly type: StoredType;
}

/** Certificates of one row by copies of the default format. */
export function certifyOps(
  room: MeasureRoom,
  { inputs, outputs }: MeasuredShape,
  fewest: number,
): MeasuredOps {
  const format = lowBitFormat(defaultLowBit);
  const { byteLength } = lowBitLayout(format, inputs, outputs, 0);
  return overParts(room.weights, byteLength, fewest, (span) => ({
    kind: 'certify',
    rows: 1,
    copy: { span, format, inputs, outputs, directions: 0, directionExponent: 0 },
    input: room.rounded,
    bias: null,
    threshold: 0,
    out: room.out,
  }));
}

/** Products of one row with quantised matrices. */
export function quantisedOps(
  { weights, x, out }: MeasureRoom,
  { inputs, outputs }: MeasuredShape,
  type: QuantisedType,
  fewest: number,
): MeasuredOps {
  const { codeBytes, scalesOffset, scaleBytes, byteLength } = quantisedLayout(type, inputs, outputs);
  return overParts(weights, byteLength, fewest, (span) => ({
    kind: 'quantised-linear',
    rows: 1,
    x,
    inputs,
    outputs,
    type,
    codes: subspan(span, 0, codeBytes),
    scales: subspan(span, scalesOffset, scaleBytes),
    out,
    bias: null,
    residual: null,
  }));
}

/** Frozen: what comes again word for word can be recorded, as decode passes are. */
function overParts(weights: Span, byteLength: number, fewest: number, op: (span: Span) => Op): MeasuredOps {
  const parts = Math.max(1, Math.floor(weights.byteLength / byteLength));
  const count = Math.max(parts, fewest);
  const ops = Array.from({ length: count }, (_, index) => ({
    label: 'rate of products',
    op: op(subspan(weights, (index % parts) * byteLength, byteLength)),
  }));
  return { ops: Object.freeze(ops), byteLength: count * byteLength };
}
