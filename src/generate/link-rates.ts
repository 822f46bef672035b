import { readSync } from 'node:fs';
import type { LinkRates } from '../acquire/placement.js';
import type { Backend } from '../backend/backend.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';

/** Enough for a steady rate, little enough to read in a moment from a slow disk. */
const sampleBytes = 32 * 1024 * 1024;
const denseReadBytes = 1024 * 1024;
const sampleRows = 256;

/**
 * Rates of the link that a backend's weights come over: of a device's own where it has one, else of the prepared file.
 * Measured each time: what else runs on the machine is part of it.
 */
export async function measureLink(prepared: PreparedModel, { hostTier }: Backend): Promise<LinkRates> {
  if (hostTier?.measureLink === undefined) return measureFileRates(prepared);
  return hostTier.measureLink(linkRowBytes(prepared));
}

/**
 * Measures how fast the prepared file is read: in long pieces, and in rows of second projections far from one another.
 * What the system keeps in its page cache counts as it is, so a file that was just prepared shows the rates of memory.
 */
function measureFileRates(prepared: PreparedModel): LinkRates {
  const { weightsFile } = prepared;
  const { descriptor, byteLength } = weightsFile;
  const buffer = new Uint8Array(denseReadBytes);
  const dense = timeReads(
    descriptor,
    buffer,
    evenly(byteLength, denseReadBytes, sampleBytes / denseReadBytes),
  );
  const rowBytes = Math.min(denseReadBytes, linkRowBytes(prepared));
  return {
    denseBytesPerSecond: dense,
    rowBytesPerSecond: timeReads(descriptor, buffer, evenly(byteLength, rowBytes, sampleRows)),
  };
}

/** Of a row of second projections. */
export function linkRowBytes({ description, tensor }: PreparedModel): number {
  const second = description.matrices.find(({ role }) => role === 'second');
  if (second === undefined) return denseReadBytes;
  const { byteLength, shape } = tensor(second.id);
  return byteLength / shape[0]!;
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
