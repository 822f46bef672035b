import { certifyFields } from './certify-parameters.js';
import { nativeFields } from './native-parameters.js';

/**
 * Parameters of the kernels: one structure each, every field 8 bytes. The structures of cuda/*.cu declare the same fields
 * in the same order; a test compares them. `pointer`: a device address, 0 for none. `integer`: i64. `real`: f64, which
 * holds a binary32 value except where certificates are computed.
 */
export type FieldKind = 'pointer' | 'integer' | 'real';

const pointer = 'pointer';
const integer = 'integer';
const real = 'real';

export const parameterFields = {
  ...certifyFields,
  ...nativeFields,
  LinearRowsParams: {
    rows: integer,
    x: pointer,
    xStride: integer,
    inputs: integer,
    rowStride: integer,
    outStride: integer,
    continues: integer,
    activation: integer,
    threshold: real,
    blocksPerRound: integer,
    ranks: integer,
    share: integer,
    rounds: integer,
    turnsOfRound: integer,
    turnsOfTile: integer,
    tiles: integer,
    depth: integer,
    prefetchBytes: integer,
    matrix0: pointer,
    out0: pointer,
    bias0: pointer,
    residual0: pointer,
    outputs0: integer,
    matrix1: pointer,
    out1: pointer,
    bias1: pointer,
    outputs1: integer,
    matrix2: pointer,
    out2: pointer,
    bias2: pointer,
    outputs2: integer,
    norm: integer,
    epsilon: real,
    gamma: pointer,
    beta: pointer,
    normOut: pointer,
    store: integer,
    positions: pointer,
    keyCache: pointer,
    valueCache: pointer,
    headDim: integer,
    capacity: integer,
    status: pointer,
  },
  LinearTilesParams: {
    rows: integer,
    x: pointer,
    xStride: integer,
    inputs: integer,
    matrix: pointer,
    rowStride: integer,
    outputs: integer,
    out: pointer,
    outStride: integer,
    continues: integer,
    bias: pointer,
    residual: pointer,
    activation: integer,
    threshold: real,
  },
  QuantisedRowsParams: {
    rows: integer,
    x: pointer,
    inputs: integer,
    blocksPerRound: integer,
    quads: integer,
    depth: integer,
    activation: integer,
    threshold: real,
    codes0: pointer,
    scales0: pointer,
    out0: pointer,
    bias0: pointer,
    residual0: pointer,
    outputs0: integer,
    codes1: pointer,
    scales1: pointer,
    out1: pointer,
    bias1: pointer,
    outputs1: integer,
    codes2: pointer,
    scales2: pointer,
    out2: pointer,
    bias2: pointer,
    outputs2: integer,
  },
  GreedyParams: { width: integer, x: pointer, out: pointer },
  CompactParams: { rows: integer, width: integer, x: pointer, active: pointer },
  ActiveInputsParams: {
    rows: integer,
    x: pointer,
    xStride: integer,
    active: pointer,
    listBegin: integer,
    listEnd: integer,
    slots: pointer,
    neuronBlocks: integer,
    matrix: pointer,
    rowStride: integer,
    outputs: integer,
    out: pointer,
    continues: integer,
    bias: pointer,
    residual: pointer,
    blocksPerRound: integer,
  },
  ActiveDirectParams: {
    rows: integer,
    x: pointer,
    width: integer,
    active: pointer,
    matrix: pointer,
    rowStride: integer,
    outputs: integer,
    out: pointer,
    continues: integer,
    bias: pointer,
    residual: pointer,
    blocksPerRound: integer,
    flagged: pointer,
    flaggedWidth: integer,
  },
  RetainRowsParams: {
    rows: integer,
    width: integer,
    x: pointer,
    active: pointer,
    places: integer,
    placeOf: pointer,
    neuronOf: pointer,
    order: pointer,
    used: pointer,
    missing: pointer,
    hits: pointer,
  },
  MoveRunsParams: { runs: pointer, count: integer },
  GuessRowsParams: {
    set: pointer,
    neurons: integer,
    places: integer,
    placeOf: pointer,
    held: pointer,
    matrix: pointer,
    rowBytes: integer,
    guessed: pointer,
  },
  HeldInputsParams: {
    rows: integer,
    x: pointer,
    width: integer,
    active: pointer,
    hits: pointer,
    placeOf: pointer,
    held: pointer,
    matrix: pointer,
    rowStride: integer,
    outputs: integer,
    out: pointer,
    bias: pointer,
    residual: pointer,
    blocksPerRound: integer,
  },
  HeldOutputsParams: {
    rows: integer,
    x: pointer,
    inputs: integer,
    active: pointer,
    placeOf: pointer,
    held: pointer,
    matrix: pointer,
    rowStride: integer,
    out: pointer,
    outStride: integer,
    bias: pointer,
    blocksPerRound: integer,
  },
  OutputRowsParams: {
    rows: integer,
    x: pointer,
    xStride: integer,
    inputs: integer,
    matrix: pointer,
    rowStride: integer,
    outputs: integer,
    active: pointer,
    listBegin: integer,
    listEnd: integer,
    slots: pointer,
    out: pointer,
    outStride: integer,
    continues: integer,
    bias: pointer,
    residual: pointer,
    activation: integer,
    threshold: real,
    blocksPerRound: integer,
  },
  GatherParams: {
    rows: integer,
    columns: integer,
    table: pointer,
    tableRows: integer,
    rowStride: integer,
    columnStride: integer,
    ids: pointer,
    out: pointer,
    status: pointer,
  },
  ActivateParams: { count: integer, activation: integer, threshold: real, x: pointer },
  GatedProductParams: { count: integer, gate: pointer, up: pointer },
  AddParams: { count: integer, a: pointer, b: pointer, out: pointer },
  NormParams: {
    rms: integer,
    width: integer,
    epsilon: real,
    x: pointer,
    gamma: pointer,
    beta: pointer,
    out: pointer,
  },
  RopeParams: {
    heads: integer,
    headDim: integer,
    half: integer,
    positions: pointer,
    cosines: pointer,
    sines: pointer,
    x: pointer,
  },
  StoreKvParams: {
    positions: pointer,
    keys: pointer,
    values: pointer,
    keyCache: pointer,
    valueCache: pointer,
    kvHeads: integer,
    headDim: integer,
    capacity: integer,
    status: pointer,
  },
  AttentionParams: {
    rows: integer,
    heads: integer,
    positions: pointer,
    scale: real,
    query: pointer,
    keys: pointer,
    values: pointer,
    kvHeads: integer,
    headDim: integer,
    capacity: integer,
    scratch: pointer,
    out: pointer,
    groups: integer,
    stages: integer,
    prefetch: integer,
  },
} as const satisfies Record<string, Readonly<Record<string, FieldKind>>>;

export type ParameterStructure = keyof typeof parameterFields;
export type ParameterValues<Structure extends ParameterStructure> = Readonly<
  Record<keyof (typeof parameterFields)[Structure], number>
>;

/** Names and kinds in their order, looked up once: a decode pass of many submissions writes hundreds of structures. */
const orderedFields = new Map(
  Object.entries(parameterFields).map(([structure, fields]) => [structure, Object.entries(fields)]),
);
const wordSpan = 2 ** 32;

/** Writes a structure's fields; returns its bytes. Throws `RangeError` for an integer field that holds none. */
export function encodeParameters(
  structure: ParameterStructure,
  values: Readonly<Record<string, number>>,
  into: DataView,
): number {
  let byteOffset = 0;
  for (const [name, kind] of orderedFields.get(structure)!) {
    const value = values[name]!;
    if (kind === real) {
      into.setFloat64(byteOffset, value, true);
    } else {
      if (!Number.isSafeInteger(value)) {
        throw new RangeError(`Cannot write "${name}" of ${structure}: it is ${value}, want an integer`);
      }
      const high = Math.floor(value / wordSpan);
      into.setUint32(byteOffset, value - high * wordSpan, true);
      into.setInt32(byteOffset + 4, high, true);
    }
    byteOffset += 8;
  }
  return byteOffset;
}
