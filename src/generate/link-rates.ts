import { readSync } from 'node:fs';
import type { LinkRates } from '../acquire/placement.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';

/** Enough for a steady rate, little enough to read in a moment from a slow disk. */
const sampleBytes = 32 * 1024 * 1024;
const denseReadBytes = 1024 * 1024;
const sampleRows = 256;

/**
 * Measures how fast the prepared file is read: in long pieces, and in rows of second projections far from one another.
 * What the system keeps in its page cache counts as it is, so a file that was just prepared shows the rates of memory.
 */
export async function measureLinkRates({
  weightsFile,
  description,
  tensor,
}: PreparedModel): Promise<LinkRates> {
  const { descriptor, byteLength } = weightsFile;
  const buffer = new Uint8Array(denseReadBytes);
  const dense = timeReads(
    descriptor,
    buffer,
    evenly(byteLength, denseReadBytes, sampleBytes / denseReadBytes),
  );
  const second = description.matrices.find(({ role }) => role === 'second');
  const rows = second === undefined ? null : tensor(second.id);
  const rowBytes =
    rows === null ? denseReadBytes : Math.min(denseReadBytes, rows.byteLength / rows.shape[0]!);
  return {
    denseBytesPerSecond: dense,
    rowBytesPerSecond: timeReads(descriptor, buffer, evenly(byteLength, rowBytes, sampleRows)),
  };
}

/** At most `count` regions of `size` bytes, spread over the file. */
function evenly(byteLength: number, size: number, count: number): { position: number; size: number }[] {
  const fitting = Math.max(1, Math.min(count, Math.floor(byteLength / size)));
  const step = Math.floor(byteLength / fitting / 64) * 64;
  return Array.from({ length: fitting }, (_, index) => ({
    position: index * step,
    size: Math.min(size, byteLength - index * step),
  }));
}

/** Bytes a second; synchronous, because a trip through the event loop takes longer than a warm row. */
function timeReads(
  descriptor: number,
  buffer: Uint8Array,
  regions: readonly { position: number; size: number }[],
): number {
  const began = process.hrtime.bigint();
  let bytes = 0;
  for (const { position, size } of regions) {
    bytes += readSync(descriptor, buffer, 0, size, position);
  }
  return bytes / (Number(process.hrtime.bigint() - began) / 1e9);
}
