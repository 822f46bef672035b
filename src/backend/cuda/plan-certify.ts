import { DefectError } from '../../base/errors.js';
import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { type LowBitName, lowBitFormats, lowBitNames, paddedInputs } from '../../checkpoint/low-bit.js';
import { lowBitLayout, roundedInputLayout } from '../../checkpoint/low-bit-layout.js';
import {
  type ActiveOutputsOp,
  blockInputs,
  type CertifyOp,
  type CompactOp,
  type LowBitCopy,
  type NormOp,
  type PlacedOp,
  type RoundInputOp,
} from '../ops.js';
import { type Fused, fusableActivation } from './fuse.js';
import { at, type Launch, type LaunchFacts, launch, rowsVariant } from './launch.js';
import { type FusedActivation, noActivation } from './plan-linear-rows.js';
import { nativeProduct } from './plan-native.js';
import { paddedBlock } from './stream-shape.js';

/** Of the kernel's fixed arrays, in bytes: components, their exact numbers, and what joins threads. */
const roundFixedBytes = 64 * 8 + 32 * 8 + 64 * 4;

/** Whether a norm's result is what is rounded, row by row. */
export function roundsNorm(norm: NormOp, op: RoundInputOp, facts: LaunchFacts): boolean {
  const { inputs } = op.copy;
  return (
    at(norm.out) === at(op.x) &&
    norm.rows === op.rows &&
    norm.width === inputs &&
    norm.rows > 0 &&
    roundRoom(op.copy, facts).blocksPerRound === Math.ceil(inputs / blockInputs)
  );
}

function roundRoom({ inputs }: LowBitCopy, facts: LaunchFacts) {
  const perBlock = 2 * 8 + (blockInputs + 1) * 8 + paddedBlock * 4;
  const blocks = Math.max(1, Math.ceil(inputs / blockInputs));
  const blocksPerRound = Math.min(blocks, Math.floor((facts.sharedBytes - roundFixedBytes) / perBlock));
  return { blocksPerRound, sharedBytes: roundFixedBytes + blocksPerRound * perBlock };
}

/** A block of threads a row; `norm`: the one that makes its inputs, part of the launch. */
export function planRoundInput(
  op: RoundInputOp,
  opIndex: number,
  norm: NormOp | null,
  facts: LaunchFacts,
): Launch[] {
  if (op.rows === 0) return [];
  const { copy, rows } = op;
  const { inputs, directions } = copy;
  const layout = roundedInputLayout(rows, inputs, directions);
  const { blocksPerRound, sharedBytes } = roundRoom(copy, facts);
  const basis = lowBitLayout(copy.format, inputs, copy.outputs, directions).directions.byteOffset;
  const threads = Math.min(512, Math.max(64, Math.ceil(inputs / 256) * 64));
  return [
    launch(
      opIndex,
      'round_input',
      'RoundInputParams',
      { grid: [rows], threads, sharedBytes, overlapsPrevious: true },
      {
        inputs,
        directions,
        directionExponent: copy.directionExponent,
        x: at(op.x),
        basis: directions === 0 ? 0 : at(copy.span) + basis,
        scalars: at(op.out),
        rounded: at(op.out) + layout.inputs.byteOffset,
        components: at(op.out) + layout.components.byteOffset,
        blocksPerRound,
        ...roundingValues(op, norm),
      },
    ),
  ];
}

/** What rounding an input, behind a norm or not, takes that is no place of its own. */
export function roundingValues({ copy: { inputs } }: RoundInputOp, norm: NormOp | null) {
  // docs/certificates.md, "The input of a pass"
  const terms = blockInputs + Math.ceil(inputs / blockInputs) + 2;
  return {
    inflation: 1 + (inputs + 4) * 2 ** -52,
    gamma: (terms * 2 ** -24) / (1 - terms * 2 ** -24),
    constant: inputs * 2 ** -149,
    norm: norm === null ? -1 : norm.norm === 'rms' ? 1 : 0,
    epsilon: norm === null ? 0 : Math.fround(norm.epsilon),
    from: norm === null ? 0 : at(norm.x),
    scale: norm === null ? 0 : at(norm.gamma),
    shift: norm === null ? 0 : at(norm.beta),
  };
}

/** A certificate with the product of the rows that it leaves uncertain, and the activation behind them. */
export interface CertifiedRows {
  readonly certify: CertifyOp;
  readonly opIndex: number;
  readonly compact: CompactOp;
  readonly product: ActiveOutputsOp;
  readonly activation: FusedActivation | null;
}

/** Rows up to which they are one launch; the kernels' variants. */
const mostFusedRows = 4;

/** From `index` on, where rows lie by neuron and can be read in pieces of 16 bytes; else null. */
export function certifiedRows(
  ops: readonly PlacedOp[],
  index: number,
  facts: LaunchFacts,
): Fused<CertifiedRows> | null {
  const certify = ops[index]!.op as CertifyOp;
  const compact = ops[index + 1]?.op;
  const product = ops[index + 2]?.op;
  if (compact?.kind !== 'compact' || product?.kind !== 'active-outputs') return null;
  const { rows, out, bias } = certify;
  const { inputs, outputs } = certify.copy;
  const { matrix } = product;
  const size = storedBytes[matrix.type];
  const serves =
    rows > 0 &&
    outputs > 0 &&
    rows <= mostFusedRows &&
    compact.rows === rows &&
    compact.width === outputs &&
    at(compact.x) === at(out) &&
    product.rows === rows &&
    product.inputs === inputs &&
    at(product.active) === at(compact.active) &&
    product.listBegin === 0 &&
    product.listEnd < 0 &&
    product.slots === null &&
    at(product.out) === at(out) &&
    product.outStride === outputs &&
    at(product.bias) === at(bias) &&
    matrix.layout === 'output-major' &&
    nativeProduct(product) === null &&
    [at(matrix.span), matrix.rowStride * size, inputs * size].every((bytes) => bytes % 16 === 0);
  if (!serves || shapeOf(certify.copy, rowsVariant(rows), matrix.type, facts) === null) return null;
  const behind = ops[index + 3]?.op;
  const activation =
    behind?.kind === 'activate' ? fusableActivation({ ...product, outputs, outOffset: 0 }, behind) : null;
  const value = { certify, opIndex: index, compact, product, activation };
  return { value, next: activation === null ? index + 3 : index + 4 };
}

/** Neurons that are left uncertain are written to the words of the active set, for `planFlags` to make a set of. */
export function planCertifiedRows(rows: CertifiedRows, facts: LaunchFacts): Launch {
  const { certify, opIndex, product } = rows;
  const { type } = product.matrix;
  return planGroup(certify, opIndex, [0, certify.rows], facts, {
    type,
    values: { ...rowValues(rows), x: at(product.x) },
  });
}

/** What the product of uncertain rows takes. */
export function rowValues({ compact, product, activation }: CertifiedRows) {
  const { type, rowStride, span } = product.matrix;
  const { code, threshold } = activation ?? noActivation;
  return {
    weights: typeNumbers[type],
    matrix: at(span),
    rowStride,
    flags: at(compact.active) + 4,
    activation: code,
    activationThreshold: threshold,
  };
}

/** The set of the neurons that `planCertifiedRows` flagged, in place of the flags. */
export function planFlags({ compact, opIndex }: CertifiedRows): Launch {
  return launch(
    opIndex + 1,
    'compact',
    'CompactParams',
    { grid: [1], threads: 1024, overlapsPrevious: true },
    { rows: 1, width: compact.width, x: at(compact.active) + 4, active: at(compact.active) },
  );
}

/** Marks alone. Where inputs of 8 rows have no room, a launch takes fewer. */
export function planCertify(op: CertifyOp, opIndex: number, facts: LaunchFacts): Launch[] {
  if (op.rows === 0 || op.copy.outputs === 0) return [];
  const most = ([8, 4, 2, 1] as const).find((rows) => shapeOf(op.copy, rows, null, facts) !== null);
  if (most === undefined) {
    throw new DefectError(
      `Cannot certify ${op.copy.inputs} inputs on a GPU with ${facts.sharedBytes} bytes of shared memory`,
    );
  }
  const launches: Launch[] = [];
  for (let begin = 0; begin < op.rows; begin += most) {
    launches.push(planGroup(op, opIndex, [begin, Math.min(most, op.rows - begin)], facts, null));
  }
  return launches;
}

const typeNumbers: Readonly<Record<StoredType, number>> = { f32: 0, f16: 1, bf16: 2 };
export const noRows: ReturnType<typeof rowValues> = {
  weights: -1,
  matrix: 0,
  rowStride: 0,
  flags: 0,
  activation: -1,
  activationThreshold: 0,
};

function planGroup(
  op: CertifyOp,
  opIndex: number,
  [begin, rows]: readonly [number, number],
  facts: LaunchFacts,
  product: { readonly type: StoredType; readonly values: typeof noRows & { readonly x: number } } | null,
): Launch {
  const { copy } = op;
  const { inputs, outputs, directions, format } = copy;
  const variant = rowsVariant(rows);
  const shape = shapeOf(copy, variant, product?.type ?? null, facts)!;
  const layout = lowBitLayout(format, inputs, outputs, directions);
  const input = roundedInputLayout(op.rows, inputs, directions);
  const section = (name: 'records' | 'codes' | 'high' | 'groupScales' | 'components') =>
    layout[name].byteLength === 0 ? 0 : at(copy.span) + layout[name].byteOffset;
  return launch(
    opIndex,
    `certify_${formatName(copy)}_r${variant}`,
    'CertifyParams',
    {
      grid: [shape.grid],
      threads: shape.warps * 32,
      sharedBytes: shape.sharedBytes,
      overlapsPrevious: true,
    },
    {
      rows,
      inputs,
      outputs,
      directions,
      threshold: Math.fround(op.threshold),
      scalars: at(op.input) + begin * 64,
      rounded: at(op.input) + input.inputs.byteOffset + begin * paddedInputs(inputs) * 2,
      projected: at(op.input) + input.components.byteOffset + begin * directions * 2,
      records: section('records'),
      codes: section('codes'),
      high: section('high'),
      groupScales: section('groupScales'),
      components: section('components'),
      bias: at(op.bias),
      out: at(op.out) + begin * outputs * 4,
      depth: shape.depth,
      warpBytes: shape.warpBytes,
      mostTurns: shape.mostTurns,
      prefetchBytes: facts.overlaps ? Math.floor(prefetchedBytes / shape.grid / 16) * 16 : 0,
      ...(product?.values ?? { ...noRows, x: 0 }),
      rowBlocks: shape.rowBlocks,
    },
  );
}

function formatName({ format }: LowBitCopy): LowBitName {
  return lowBitNames.find(
    (name) => lowBitFormats[name].bits === format.bits && lowBitFormats[name].groups === format.groups,
  )!;
}

/** How the neurons of a copy are divided; cuda/certify.cu has the order of what lies in shared memory. */
interface CertifyShape {
  readonly grid: number;
  readonly warps: number;
  readonly depth: number;
  readonly warpBytes: number;
  /** Of a block of threads, two neurons each. */
  readonly mostTurns: number;
  readonly rowBlocks: number;
  readonly sharedBytes: number;
}

/** Lanes of a neuron, and what a launch bound allows. */
const lanes = 16;
const mostWarps = 16;
/** Neurons of a block of threads whose records lie in shared memory. */
const mostTurnsOfBlock = 128;
/** Of a warp's ring, as `awaitOldest` knows them. */
const depths = [12, 8, 6, 4, 3, 2] as const;
/** Below half of the second-level cache of an H200; as products of few rows have it. */
const prefetchedBytes = 20 * 1024 * 1024;
const reservedBytes = 1024;

/** Null where shared memory has no room for the inputs of so many rows. `type`: of rows that are read, too. */
function shapeOf(
  { inputs, outputs, directions, format: { bits, groups } }: LowBitCopy,
  variant: 1 | 2 | 4 | 8,
  type: StoredType | null,
  facts: LaunchFacts,
): CertifyShape | null {
  const pieces = bits === 8 ? 1 : 2;
  const units = Math.ceil(paddedInputs(inputs) / (16 * pieces) / lanes) * lanes;
  const scaleBytes = groups ? lanes / (bits === 8 ? 2 : 1) : 0;
  const stageBytes = 512 + 32 * (bits === 8 ? 0 : (bits - 4) * 4) + 2 * scaleBytes;
  const turns = Math.ceil(outputs / 2);
  const grid = Math.max(Math.min(facts.multiprocessors, turns), Math.ceil(turns / mostTurnsOfBlock));
  const mostTurns = Math.ceil(turns / grid);
  // As many warps as have equally many turns.
  const warps = Math.ceil(mostTurns / Math.ceil(mostTurns / mostWarps));
  const blocks = Math.ceil(inputs / blockInputs);
  const kept = 2 * mostTurns;
  const fixedBytes =
    variant * 2 * pieces * units * 16 +
    variant * (64 + 128) +
    kept * (directions > 0 ? 32 : 16) +
    kept * 8 +
    (bits === 8 ? 0 : variant * units * 4) +
    (type === null ? 0 : warps * variant * 128 + variant * blocks * paddedBlock * 4);
  const blockBytes = type === null ? 0 : blockInputs * storedBytes[type] + 16;
  const wholeRow = Math.min(32, blocks) * blockBytes;
  // Half of it, so that what runs before or behind has room beside; all of it where that is too little.
  for (const share of [2, 1]) {
    const room = Math.floor((facts.sharedBytes + reservedBytes) / share) - reservedBytes - fixedBytes;
    for (const depth of share === 2 ? depths.slice(0, 3) : depths) {
      for (const least of [wholeRow, blockBytes]) {
        const warpBytes = Math.max(depth * stageBytes, least);
        if (warps * warpBytes > room) continue;
        const rowBlocks = type === null ? 0 : Math.min(32, blocks, Math.floor(warpBytes / blockBytes));
        return {
          grid,
          warps,
          depth,
          warpBytes,
          mostTurns,
          rowBlocks,
          sharedBytes: fixedBytes + warps * warpBytes,
        };
      }
    }
  }
  return null;
}
