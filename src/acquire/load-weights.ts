import type { TransferFile } from '../backend/backend.js';
import { InterruptedError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { WeightMover, WeightRegion } from './executor.js';

/** Regions that are to hold weights before the first pass. */
export interface Load {
  readonly id: string;
  readonly layer: number | null;
  readonly rows: number;
  readonly regions: readonly WeightRegion[];
}

/** Resident matrices are read in regions of this size, so that several are on their way at once. */
const loadRegionBytes = 8 * 1024 * 1024;

/** `file` where it is not the weights file. */
export function regionsOfLoad(target: Span, position: number, file?: TransferFile): WeightRegion[] {
  const other = file === undefined ? {} : { file };
  const regions: WeightRegion[] = [];
  for (let offset = 0; offset < target.byteLength; offset += loadRegionBytes) {
    const byteLength = Math.min(loadRegionBytes, target.byteLength - offset);
    regions.push({ ...other, position: position + offset, target: subspan(target, offset, byteLength) });
  }
  return regions;
}

/** Brings what is resident to its place. Rejects as `WeightMover.move`, and with InterruptedError `interrupted`. */
export async function loadWeights(
  mover: WeightMover,
  loads: readonly Load[],
  { onProgress, signal }: LoadWatch,
): Promise<void> {
  const bytesOf = ({ regions }: Load) => regions.reduce((sum, { target }) => sum + target.byteLength, 0);
  const total = loads.reduce((sum, load) => sum + bytesOf(load), 0);
  let loaded = 0;
  for (const load of loads) {
    if (signal?.aborted === true) {
      throw new InterruptedError('interrupted', 'Stopped loading weights: the run was aborted');
    }
    const { id, layer, rows, regions } = load;
    await mover.move({ cause: 'setup', layer, id, rows, pass: 0 }, regions);
    loaded += bytesOf(load);
    onProgress?.(loaded, total);
  }
}

/** Who watches, and may end it. */
export interface LoadWatch {
  readonly onProgress?: (loadedBytes: number, totalBytes: number) => void;
  readonly signal?: AbortSignal;
}
