import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { type LowBitName, lowBitFormats, lowBitNames } from '../../checkpoint/low-bit.js';
import { lowBitLayout, roundedInputLayout } from '../../checkpoint/low-bit-layout.js';
import { blockInputs, type CertifyOp, type NormOp, type PlacedOp, type RoundInputOp } from '../ops.js';
import type { Fused } from './fuse.js';
import { at, type Launch, type LaunchFacts, launch } from './launch.js';
import { type CertifiedRows, certifiedRows, noRows, roundingValues, rowValues } from './plan-certify.js';
import { paddedBlock } from './stream-shape.js';

/** Certificates of one row that are one launch with all that makes their input; cuda/certify-normed.cu. */
export interface NormedCertificate {
  readonly norm: NormOp | null;
  readonly round: RoundInputOp;
  readonly certify: CertifyOp;
  readonly opIndex: number;
  /** The product of the uncertain rows, where it can be part of the launch. */
  readonly rows: CertifiedRows | null;
  readonly shape: NormedShape;
}

/** From `index` on, a norm or none in front of the rounding; null where the kernel does not serve. */
export function normedCertificate(
  ops: readonly PlacedOp[],
  index: number,
  facts: LaunchFacts,
): Fused<NormedCertificate> | null {
  const first = ops[index]!.op;
  const norm = first.kind === 'norm' ? first : null;
  const opIndex = norm === null ? index : index + 1;
  const round = ops[opIndex]?.op;
  const certify = ops[opIndex + 1]?.op;
  if (round?.kind !== 'round-input' || certify?.kind !== 'certify') return null;
  const { copy } = round;
  const serves =
    round.rows === 1 &&
    certify.rows === 1 &&
    copy.directions === 0 &&
    copy.outputs > 0 &&
    at(copy.span) === at(certify.copy.span) &&
    at(copy.span) % 16 === 0 &&
    at(round.out) === at(certify.input) &&
    (norm === null || makes(norm, round));
  if (!serves) return null;
  const group = certifiedRows(ops, opIndex + 1, facts);
  const whole = group !== null && at(group.value.product.x) === at(round.x);
  const shapeWith = (type: StoredType | null) => normedShape(certify, type, facts);
  const withRows = whole ? shapeWith(group.value.product.matrix.type) : null;
  const shape = withRows ?? shapeWith(null);
  if (shape === null) return null;
  const rows = withRows === null ? null : group!.value;
  const next = rows === null ? opIndex + 2 : group!.next;
  return { value: { norm, round, certify, opIndex, rows, shape }, next };
}

/** Whether a norm makes exactly what is rounded; it is read while its result is written. */
function makes(norm: NormOp, round: RoundInputOp): boolean {
  return (
    at(norm.out) === at(round.x) &&
    at(norm.out) !== at(norm.x) &&
    norm.rows === 1 &&
    norm.width === round.copy.inputs
  );
}

export function planNormedCertificate({
  norm,
  round,
  certify,
  opIndex,
  rows,
  shape,
}: NormedCertificate): Launch {
  const { copy } = certify;
  const { inputs, outputs, format } = copy;
  const layout = lowBitLayout(format, inputs, outputs, 0);
  const input = roundedInputLayout(1, inputs, 0);
  const section = (name: 'records' | 'codes' | 'high' | 'groupScales') =>
    layout[name].byteLength === 0 ? 0 : at(copy.span) + layout[name].byteOffset;
  const rounding = roundingValues(round, norm);
  const product = rows === null ? noRows : rowValues(rows);
  return launch(
    opIndex,
    `certify_normed_${shape.kernel}`,
    'CertifyNormedParams',
    {
      grid: [shape.grid],
      threads: normedThreads,
      sharedBytes: shape.sharedBytes,
      overlapsPrevious: true,
    },
    {
      rows: 1,
      inputs,
      outputs,
      threshold: Math.fround(certify.threshold),
      norm: rounding.norm,
      epsilon: rounding.epsilon,
      from: rounding.from,
      scale: rounding.scale,
      shift: rounding.shift,
      x: at(round.x),
      inflation: rounding.inflation,
      gamma: rounding.gamma,
      constant: rounding.constant,
      scalars: at(round.out),
      rounded: at(round.out) + input.inputs.byteOffset,
      records: section('records'),
      codes: section('codes'),
      high: section('high'),
      groupScales: section('groupScales'),
      bias: at(certify.bias),
      out: at(certify.out),
      slots: shape.slots,
      early: earlySlots,
      most: shape.most,
      weights: product.weights,
      matrix: product.matrix,
      rowStride: product.rowStride,
      flags: product.flags,
      activation: product.activation,
      activationThreshold: product.activationThreshold,
      rowBlocks: shape.rowBlocks,
    },
  );
}

interface NormedShape {
  /** Ends the kernel's name. */
  readonly kernel: string;
  readonly grid: number;
  readonly slots: number;
  /** Neurons of a block of threads. */
  readonly most: number;
  readonly rowBlocks: number;
  readonly sharedBytes: number;
}

const warps = 16;
/** One more warp adds norms. */
const normedThreads = (warps + 1) * 32;
/** Units of 16 bytes of codes that a lane takes of a neuron: the kernels' variants. */
const units: Readonly<Record<LowBitName, readonly number[]>> = {
  int8: [5, 10],
  int8g32: [5],
  int6g32: [3],
  int5g32: [3],
  int4g32: [3],
};
/** Inputs in multiples of which every part of a neuron's codes is a multiple of 16 bytes. */
const inputStep = 512;
/** Neurons of a warp on their way; more of them do not fit beside the rest or come no faster. */
const mostSlots = 4;
/** Of these, asked for ahead of the inputs, which wait behind them. */
const earlySlots = 1;

/** Null where the inputs are of another size or shared memory has no room. `type`: of rows that are read, too. */
function normedShape(
  { copy: { inputs, outputs, format } }: CertifyOp,
  type: StoredType | null,
  facts: LaunchFacts,
): NormedShape | null {
  const { bits, groups } = format;
  const codesOfLane = bits === 8 ? 16 : 32;
  const name = lowBitNames.find(
    (one) => lowBitFormats[one].bits === bits && lowBitFormats[one].groups === groups,
  )!;
  const variant = units[name].find((u) => inputs <= u * codesOfLane * 32);
  if (inputs === 0 || inputs % inputStep !== 0 || variant === undefined) return null;
  const blocks = inputs / blockInputs;
  const slotBytes =
    (inputs / codesOfLane) * (16 + (bits === 8 ? 0 : (bits - 4) * 4)) + (groups ? inputs / 32 : 0);
  const grid = Math.min(facts.multiprocessors, outputs);
  const most = Math.ceil(outputs / grid);
  // As cuda/certify-normed.cu lays them out.
  const fixedBytes =
    blocks * (paddedBlock * 4 + 2 * (blockInputs + 1) * 8 + 2 * 8 + (blockInputs + 8) * 2) +
    (8 + 32) * 8 +
    warps * 32 * 4 +
    Math.ceil(most / 2) * 2 * (8 + 16 + 4 + 4) +
    4;
  const blockBytes = type === null ? 0 : blockInputs * storedBytes[type] + 16;
  for (let slots = Math.min(mostSlots, Math.ceil(most / warps)); slots > 0; slots -= 1) {
    const ringBytes = warps * slots * slotBytes;
    const sharedBytes = ringBytes + fixedBytes;
    if (sharedBytes > facts.sharedBytes) continue;
    const rowBlocks = type === null ? 0 : Math.min(32, blocks, Math.floor((slots * slotBytes) / blockBytes));
    if (type !== null && rowBlocks === 0) return null;
    return { kernel: `${name}_u${variant}`, grid, slots, most, rowBlocks, sharedBytes };
  }
  return null;
}
