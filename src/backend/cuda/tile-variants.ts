import type { LinearOp } from '../ops.js';

/** A kernel of cuda/linear-tiles.cu: outputs of a tile, and of a thread. */
export interface TileVariant {
  readonly layout: LinearOp['matrix']['layout'];
  readonly rows: number;
  readonly columns: number;
  readonly threadRows: number;
  readonly threadColumns: number;
  /**
   * Part of a full multiprocessor's arithmetic that it reaches, in proportion to the others as an H200 gave it at 512 rows of
   * 2560 x 10240 and 2560 x 2560 weights: an order of preference among tiles that divide a product equally well.
   */
  readonly share: number;
}

const tile = (
  layout: TileVariant['layout'],
  [rows, columns]: readonly [number, number],
  [threadRows, threadColumns]: readonly [number, number],
  share: number,
): TileVariant => ({ layout, rows, columns, threadRows, threadColumns, share });

/** Every compiled tile. 80 and 160 columns divide 2560 and 5120 among 132 multiprocessors, 64 and 128 do 2048 and 4096. */
export const tileVariants: readonly TileVariant[] = [
  tile('input-major', [128, 160], [8, 10], 0.82),
  tile('input-major', [128, 128], [8, 8], 0.86),
  tile('input-major', [128, 80], [8, 10], 0.72),
  tile('input-major', [128, 80], [8, 5], 0.79),
  tile('input-major', [128, 64], [8, 8], 0.69),
  tile('input-major', [128, 64], [8, 4], 0.86),
  tile('input-major', [64, 80], [8, 5], 0.77),
  tile('input-major', [64, 64], [8, 4], 0.83),
  tile('input-major', [64, 40], [4, 5], 0.72),
  tile('input-major', [32, 32], [4, 4], 0.7),
  tile('output-major', [128, 64], [8, 4], 0.8),
  tile('output-major', [64, 64], [8, 4], 0.78),
  tile('output-major', [32, 32], [4, 4], 0.6),
];

/** `128x80_8x5`; ends the names of its kernels. */
export function tileName({ rows, columns, threadRows, threadColumns }: TileVariant): string {
  return `${rows}x${columns}_${threadRows}x${threadColumns}`;
}

export function tileThreads({ rows, columns, threadRows, threadColumns }: TileVariant): number {
  return (rows / threadRows) * (columns / threadColumns);
}

/** A multiprocessor issues from four schedulers, each of which hides latencies better with a second warp. */
const schedulers = 4;
const lonelyWarpShare = 0.85;

/** Work of the busiest multiprocessor, in outputs at full speed. */
function cost(variant: TileVariant, rows: number, outputs: number, multiprocessors: number): number {
  const tiles = Math.ceil(rows / variant.rows) * Math.ceil(outputs / variant.columns);
  const most = Math.ceil(tiles / multiprocessors);
  const warps = (most * tileThreads(variant)) / 32;
  const filled = Math.min(1, warps / schedulers) * (warps < 2 * schedulers ? lonelyWarpShare : 1);
  return (most * variant.rows * variant.columns) / (variant.share * filled);
}

/** The tile that is expected to be fastest, or the one that is asked for by name where the layout has it. */
export function chooseTile(
  layout: TileVariant['layout'],
  rows: number,
  outputs: number,
  multiprocessors: number,
  wanted: string | null,
): TileVariant {
  const fitting = tileVariants.filter((one) => one.layout === layout);
  const costOf = (one: TileVariant): number => cost(one, rows, outputs, multiprocessors);
  const best = fitting.reduce((a, b) => (costOf(b) < costOf(a) ? b : a));
  return fitting.find((one) => tileName(one) === wanted) ?? best;
}
