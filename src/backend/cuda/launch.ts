import type { Span } from '../../memory/buffers.js';
import type { ParameterStructure, ParameterValues } from './parameters.js';
import type { QuantisedTuning } from './quantised-shape.js';
import type { StreamTuning } from './stream-shape.js';

/** One kernel launch as plain data: planned without a GPU, encoded and enqueued by the backend. */
export interface Launch {
  readonly kernel: string;
  readonly grid: readonly [number, number, number];
  readonly threads: number;
  readonly sharedBytes: number;
  /** Blocks of threads of a cluster; 1 for none. */
  readonly cluster: number;
  /**
   * May start before the launch in front of it has ended (programmatic dependent launch, 9.0 and later). Only for kernels
   * whose threads all execute griddepcontrol.wait before they read or write anything that a kernel writes, or write anything
   * that a kernel reads: then each launch of a chain ends after all those before it.
   */
  readonly overlapsPrevious: boolean;
  /** Runs on a stream of its own behind the launches in front, beside those that follow. */
  readonly beside: boolean;
  /** Waits for all that runs so; does not overlap what is in front. */
  readonly joins: boolean;
  readonly structure: ParameterStructure;
  readonly values: Readonly<Record<string, number>>;
  /** Index of the op in its submission, for errors. */
  readonly opIndex: number;
}

/** What planning needs to know of a device. */
export interface LaunchFacts {
  /** Compute capability times 10. */
  readonly architecture: number;
  readonly multiprocessors: number;
  readonly sharedBytes: number;
  /** Launches that say so start before the one in front has ended. */
  readonly overlaps: boolean;
  /** Shapes of few-row products that a benchmark compares; chosen by size where absent. */
  readonly tuning?: StreamTuning;
  /** As `tuning`, of quantised products. */
  readonly quantised?: QuantisedTuning;
  /** Device address of the status word of op 0; op i has the i-th word of `statusWords`, counted round. */
  readonly statusAddress: number;
  /** Device memory for rounded activations (`nativeRoomBytes`); absent in portable numerics. */
  readonly nativeRoom?: number;
  /** Kernels wanted in place of those that planning prefers, for measurements. */
  readonly variants?: KernelVariants;
}

/** What a measurement sets in place of what planning prefers. Every choice gives the same bits. */
export interface PlanChoices
  extends Partial<Pick<LaunchFacts, 'overlaps' | 'variants' | 'tuning' | 'quantised'>> {
  /** Shared memory's part of what it divides with the first-level cache, in per cent; -1 leaves it to the driver. */
  readonly sharedCarveout?: number;
}

/** Names of variants; one that does not fit an op is passed over. */
export interface KernelVariants {
  /** Of `tileVariants`: "128x80_8x5". */
  readonly tile?: string;
  /** Of `attentionVariants`: "8x1". */
  readonly attention?: string;
  /** Of `nativeTiles`: "128x160". */
  readonly native?: string;
}

/** Ops of one submission that can report a failure of their own; later ones share words with the first. */
export const statusWords = 16_384;

export function launch<Structure extends ParameterStructure>(
  opIndex: number,
  kernel: string,
  structure: Structure,
  shape: {
    grid: readonly [number, number?, number?];
    threads: number;
    sharedBytes?: number;
    cluster?: number;
    overlapsPrevious?: boolean;
    beside?: boolean;
  },
  values: ParameterValues<Structure>,
): Launch {
  const [x, y = 1, z = 1] = shape.grid;
  return {
    kernel,
    grid: [x, y, z],
    threads: shape.threads,
    sharedBytes: shape.sharedBytes ?? 0,
    cluster: shape.cluster ?? 1,
    overlapsPrevious: shape.overlapsPrevious ?? false,
    beside: shape.beside ?? false,
    joins: false,
    structure,
    values,
    opIndex,
  };
}

/** Device address of a span; 0 for none. */
export function at(span: Span | null): number {
  return span === null ? 0 : span.buffer.address + span.byteOffset;
}

export function statusOf(facts: LaunchFacts, opIndex: number): number {
  return facts.statusAddress + (opIndex % statusWords) * 4;
}

/** Kernels are made for 1, 2, 4 and 8 rows; absent rows count as zeros and are not stored. */
export function rowsVariant(rows: number): 1 | 2 | 4 | 8 {
  return rows === 1 ? 1 : rows === 2 ? 2 : rows <= 4 ? 4 : 8;
}

export const largestRowsVariant = 8;

/** `[begin, count]` of groups of at most 8 rows. */
export function rowGroups(rows: number): [number, number][] {
  const groups: [number, number][] = [];
  for (let begin = 0; begin < rows; begin += largestRowsVariant) {
    groups.push([begin, Math.min(largestRowsVariant, rows - begin)]);
  }
  return groups;
}
