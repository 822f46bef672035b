import { SetupError } from '../../base/errors.js';
import { check, cudaCodes, type DriverLibrary, describe } from './driver.js';
import { foreignBytes, type HostPages, hostPages, mostForeignBytes } from './foreign.js';

const portable = 1;
const mapped = 2;

/** Page-locked host memory that the GPU can address; `bytes` is a view of it. */
export interface PinnedMemory {
  readonly hostAddress: bigint;
  readonly deviceAddress: number;
  readonly bytes: Uint8Array;
  /** Where it is pages of ours that were pinned later. */
  readonly pages?: HostPages;
}

/** Throws `SetupError` `out-of-pinned-memory`, which names the limit to raise. */
export function allocatePinned(driver: DriverLibrary, label: string, byteLength: number): PinnedMemory {
  if (byteLength > mostForeignBytes) {
    throw new SetupError(
      'out-of-pinned-memory',
      `Cannot pin ${byteLength} bytes of host memory for "${label}": one array holds at most ${mostForeignBytes}`,
      { label, byteLength: String(byteLength) },
    );
  }
  const host = new BigUint64Array(1);
  const code = driver.cuMemHostAlloc(host, byteLength, portable | mapped);
  if (code === cudaCodes.outOfMemory || (code !== 0 && host[0] === 0n)) {
    throw refused(driver, 'cuMemHostAlloc', code, label, byteLength);
  }
  check(driver, 'cuMemHostAlloc', code, `pin ${byteLength} bytes for "${label}"`);
  return {
    hostAddress: host[0]!,
    deviceAddress: deviceAddressOf(driver, host[0]!),
    bytes: foreignBytes(host[0]!, byteLength),
  };
}

/** From so many bytes on, pages of the system come faster than the driver's allocations: 8 against 2 GB/s on an H200's host. */
const leastPagesBytes = 4 * 1024 * 1024;

/**
 * Pinned memory with what `fill` writes. Large memory is pinned behind that: what fills it in several threads then brings its
 * pages in, too. Rejects as `allocatePinned`, and with what `fill` does.
 */
export async function fillPinned(
  driver: DriverLibrary,
  enter: () => void,
  label: string,
  byteLength: number,
  fill: (bytes: Uint8Array) => Promise<void>,
): Promise<PinnedMemory> {
  const pages = byteLength < leastPagesBytes ? null : hostPages(byteLength);
  if (pages === null) {
    const memory = allocatePinned(driver, label, Math.max(4, byteLength));
    try {
      await fill(memory.bytes.subarray(0, byteLength));
    } catch (error) {
      freePinned(driver, memory);
      throw error;
    }
    return memory;
  }
  try {
    await fill(pages.bytes);
    enter();
    const code = driver.cuMemHostRegister_v2(pages.address, byteLength, portable | mapped);
    if (code !== 0) throw refused(driver, 'cuMemHostRegister', code, label, byteLength);
    const deviceAddress = deviceAddressOf(driver, pages.address);
    return { hostAddress: pages.address, deviceAddress, bytes: pages.bytes, pages };
  } catch (error) {
    pages.release();
    throw error;
  }
}

/** The driver's status; after a failure of the GPU it no longer matters. */
export function freePinned(driver: DriverLibrary, { hostAddress, pages }: PinnedMemory): number {
  if (pages === undefined) return driver.cuMemFreeHost(hostAddress);
  const code = driver.cuMemHostUnregister(hostAddress);
  pages.release();
  return code;
}

function deviceAddressOf(driver: DriverLibrary, hostAddress: bigint): number {
  const device = new BigUint64Array(1);
  check(driver, 'cuMemHostGetDevicePointer', driver.cuMemHostGetDevicePointer_v2(device, hostAddress, 0));
  return Number(device[0]!);
}

function refused(
  driver: DriverLibrary,
  call: string,
  code: number,
  label: string,
  byteLength: number,
): SetupError {
  return new SetupError(
    'out-of-pinned-memory',
    `Cannot pin ${byteLength} bytes of host memory for "${label}": ${describe(driver, call, code)}; free memory or raise the limit on locked memory ("ulimit -l", LimitMEMLOCK, or the container's memory limit)`,
    { label, byteLength: String(byteLength), cudaCode: code },
  );
}
