import { readFileSync } from 'node:fs';

/** What the system says of this process. */
export interface ProcessUsage {
  readonly residentBytes: number;
  readonly peakResidentBytes: number;
  /** Bytes fetched from block devices (Linux `read_bytes`), or null where the system does not count them. */
  readonly deviceReadBytes: number | null;
}

/** Samples the process's memory and device reads; sources: getrusage(2), /proc/self/io (proc(5)). */
export function processUsage(): ProcessUsage {
  return {
    residentBytes: process.memoryUsage.rss(),
    peakResidentBytes: process.resourceUsage().maxRSS * 1024,
    deviceReadBytes: deviceReadBytes(),
  };
}

function deviceReadBytes(): number | null {
  if (process.platform !== 'linux') return null;
  try {
    const counted = /^read_bytes: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'));
    return counted === null ? null : Number(counted[1]);
  } catch {
    return null; // containers may hide it
  }
}
