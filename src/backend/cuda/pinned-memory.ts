import { SetupError } from '../../base/errors.js';
import { check, cudaCodes, type DriverLibrary, describe } from './driver.js';
import { foreignBytes } from './foreign.js';

const portable = 1;
const mapped = 2;

/** Page-locked host memory that the GPU can address; `bytes` is a view of it. */
export interface PinnedMemory {
  readonly hostAddress: bigint;
  readonly deviceAddress: number;
  readonly bytes: Uint8Array;
}

/** Throws `SetupError` `out-of-pinned-memory`, which names the limit to raise. */
export function allocatePinned(driver: DriverLibrary, label: string, byteLength: number): PinnedMemory {
  const host = new BigUint64Array(1);
  const code = driver.cuMemHostAlloc(host, byteLength, portable | mapped);
  if (code === cudaCodes.outOfMemory || (code !== 0 && host[0] === 0n)) {
    throw new SetupError(
      'out-of-pinned-memory',
      `Cannot pin ${byteLength} bytes of host memory for "${label}": ${describe(driver, 'cuMemHostAlloc', code)}; free memory or raise the limit on locked memory ("ulimit -l", LimitMEMLOCK, or the container's memory limit)`,
      { label, byteLength: String(byteLength), cudaCode: code },
    );
  }
  check(driver, 'cuMemHostAlloc', code, `pin ${byteLength} bytes for "${label}"`);
  const device = new BigUint64Array(1);
  check(driver, 'cuMemHostGetDevicePointer', driver.cuMemHostGetDevicePointer_v2(device, host[0]!, 0));
  return {
    hostAddress: host[0]!,
    deviceAddress: Number(device[0]!),
    bytes: foreignBytes(host[0]!, byteLength),
  };
}
