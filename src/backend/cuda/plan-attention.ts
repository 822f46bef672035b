import { storedBytes } from '../../base/stored-type.js';
import { type AttentionOp, blockInputs } from '../ops.js';
import { at, type Launch, type LaunchFacts, launch } from './launch.js';
import type { ParameterValues } from './parameters.js';

/** Rows of the attention scratch, used only where a row's scores do not fit shared memory. */
export const attentionScratchRows = 16;

/**
 * How a row and head is divided where there are few rows: blocks of threads of its cluster, and groups of 128 threads in
 * each, which take the blocks of 128 positions in turn. Where rows and heads alone fill the device it is the first that fits;
 * else the first that fits and gives every block a group, else the one with the most groups that fits.
 */
export const attentionVariants = [
  { cluster: 1, groups: 1 },
  { cluster: 2, groups: 1 },
  { cluster: 2, groups: 2 },
  { cluster: 4, groups: 2 },
  { cluster: 8, groups: 2 },
  { cluster: 8, groups: 4 },
  { cluster: 8, groups: 1 },
  { cluster: 4, groups: 1 },
  { cluster: 4, groups: 4 },
  { cluster: 2, groups: 4 },
] as const;
type AttentionVariant = (typeof attentionVariants)[number];

/** `8x1`: what a benchmark asks for by `KernelVariants.attention`; `tiles` and `rows` are the other kernels. */
export function attentionName({ cluster, groups }: AttentionVariant): string {
  return `${cluster}x${groups}`;
}

export function planAttention(op: AttentionOp, opIndex: number, facts: LaunchFacts): Launch[] {
  if (op.rows === 0) return [];
  const wanted = facts.variants?.attention;
  const cluster = () => clusterLaunch(op, opIndex, facts);
  const tiles = () => tilesLaunch(op, opIndex, facts);
  const many = wanted === 'tiles' || (wanted === undefined && op.rows >= tileRows);
  const chosen = wanted === 'rows' ? null : many ? (tiles() ?? cluster()) : (cluster() ?? tiles());
  return [chosen ?? rowsLaunch(op, opIndex, facts)];
}

const oldestClusters = 90;
/** Blocks of keys or values on their way at once; the kernel can wait for 4 at most. */
const mostStages = 4;
const clusterFloats = 24; // maxima of the cluster and of the warps

/** Few rows; null where the device has no clusters or nothing fits its shared memory. */
function clusterLaunch(op: AttentionOp, opIndex: number, facts: LaunchFacts): Launch | null {
  if (facts.architecture < oldestClusters) return null;
  const blocks = Math.ceil(op.cache.capacity / blockInputs);
  const shapes = attentionVariants.flatMap((variant) => clusterShape(op, variant, blocks, facts) ?? []);
  const room = ({ cluster, groups }: AttentionVariant): number => cluster * groups;
  const widest = shapes.reduce<ClusterShape | null>(
    (a, b) => (a === null || room(b.variant) > room(a.variant) ? b : a),
    null,
  );
  const shape =
    shapes.find(({ variant }) => attentionName(variant) === facts.variants?.attention) ??
    (op.rows * op.heads >= facts.multiprocessors ? shapes[0] : undefined) ??
    shapes.find(({ variant }) => room(variant) >= blocks) ??
    widest;
  if (shape === null) return null;
  const { cluster, groups } = shape.variant;
  return launch(
    opIndex,
    `attention_cluster_${op.cache.type}`,
    'AttentionParams',
    {
      grid: [op.rows * op.heads * cluster],
      threads: groups * blockInputs,
      sharedBytes: shape.sharedBytes,
      cluster,
      overlapsPrevious: true,
    },
    { ...attentionValues(op, 0, groups), stages: shape.stages, prefetch: facts.overlaps ? 1 : 0 },
  );
}

interface ClusterShape {
  readonly variant: AttentionVariant;
  readonly stages: number;
  readonly sharedBytes: number;
}

/** As many stages as a group can use, fewer where shared memory, or that of a second block of threads, ends before. */
function clusterShape(
  { rows, heads, cache }: AttentionOp,
  variant: AttentionVariant,
  blocks: number,
  facts: LaunchFacts,
): ClusterShape | null {
  const { headDim, type } = cache;
  const { cluster, groups } = variant;
  const rounds = Math.ceil(blocks / (cluster * groups));
  const fixedBytes =
    (Math.ceil(headDim / 4) * 4 + clusterFloats + rounds * groups * blockInputs + blocks * (headDim + 1)) * 4;
  const stageBytes = groups * headDim * blockInputs * storedBytes[type];
  const alone = rows * heads * cluster <= facts.multiprocessors;
  const stagesIn = (bytes: number): number => Math.floor((bytes - fixedBytes) / stageBytes);
  const most = stagesIn(facts.sharedBytes);
  if (most < 1) return null;
  const shared = stagesIn(Math.floor(facts.sharedBytes / 2) - 1024);
  const stages = Math.min(mostStages, 2 * rounds, alone || shared < 1 ? most : shared);
  return { variant, stages, sharedBytes: fixedBytes + stages * stageBytes };
}

/** Rows of a tile, as in cuda/attention-tiles.cuh; from as many rows on tiles read less than they leave idle. */
const tileRows = 32;
const tilePitch = tileRows + 4;
const tileThreads = 256;

/** Many rows; null where a tile does not fit shared memory. */
function tilesLaunch(op: AttentionOp, opIndex: number, facts: LaunchFacts): Launch | null {
  const { headDim } = op.cache;
  const columns = Math.ceil(headDim / 4) * 4;
  const floats =
    (headDim + blockInputs) * tilePitch +
    tileRows * (columns + 1) +
    Math.max(headDim * blockInputs, blockInputs * (columns + 4));
  const fixedBytes = 2 * tileRows * 4;
  const tiles = Math.ceil(op.rows / tileRows);
  if (floats * 4 + fixedBytes > facts.sharedBytes || tiles > 65_535) return null;
  return launch(
    opIndex,
    `attention_tiles_${op.cache.type}`,
    'AttentionParams',
    { grid: [op.heads, tiles], threads: tileThreads, sharedBytes: floats * 4, overlapsPrevious: true },
    attentionValues(op, 0, 0),
  );
}

const rowThreads = 512;

/** A block of threads a row and head: everywhere, with scores in the scratch where they do not fit shared memory. */
function rowsLaunch(op: AttentionOp, opIndex: number, facts: LaunchFacts): Launch {
  const { cache } = op;
  const groups = Math.max(1, Math.floor(rowThreads / cache.headDim));
  const fixedFloats = cache.headDim + 32 + (groups + 1) * (cache.headDim + 1);
  const inShared = (fixedFloats + cache.capacity) * 4 <= facts.sharedBytes;
  const items = op.rows * op.heads;
  return launch(
    opIndex,
    `attention_${cache.type}`,
    'AttentionParams',
    {
      grid: [inShared ? items : Math.min(items, attentionScratchRows)],
      threads: rowThreads,
      sharedBytes: (fixedFloats + (inShared ? cache.capacity : 0)) * 4,
      overlapsPrevious: true,
    },
    attentionValues(op, inShared ? 0 : at(op.scratch), groups),
  );
}

function attentionValues(
  op: AttentionOp,
  scratch: number,
  groups: number,
): ParameterValues<'AttentionParams'> {
  const { cache } = op;
  return {
    rows: op.rows,
    heads: op.heads,
    positions: at(op.positions),
    scale: Math.fround(op.scale),
    query: at(op.query),
    keys: at(cache.keys),
    values: at(cache.values),
    kvHeads: cache.kvHeads,
    headDim: cache.headDim,
    capacity: cache.capacity,
    scratch,
    out: at(op.out),
    groups,
    stages: 0,
    prefetch: 0,
  };
}
