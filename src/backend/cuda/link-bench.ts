import type { AllocationRequest, DeviceBuffer } from '../../memory/buffers.js';
import type { Backend } from '../backend.js';
import { check, type DriverLibrary } from './driver.js';
import type { LinkBench } from './measure-link.js';
import type { PinnedMemory } from './pinned-memory.js';

/** What measuring needs of a backend beyond its interface. */
export interface LinkBenchParts {
  readonly driver: DriverLibrary;
  readonly stream: bigint;
  readonly enter: () => void;
  allocateMapped(request: AllocationRequest): {
    readonly buffer: DeviceBuffer;
    readonly memory: PinnedMemory;
  };
  measure(enqueue: () => Promise<unknown>): Promise<number>;
}

/** An opened GPU as `measureLink` uses it. */
export function linkBench(backend: Backend, parts: LinkBenchParts): LinkBench {
  const hostAddresses = new Map<DeviceBuffer, bigint>();
  const addressOf = (buffer: DeviceBuffer) => hostAddresses.get(buffer) ?? buffer.address;
  return {
    allocate: (request) => backend.allocate(request),
    allocateMapped: (request) => {
      parts.enter();
      const { buffer, memory } = parts.allocateMapped(request);
      hostAddresses.set(buffer, memory.hostAddress);
      return buffer;
    },
    release: (buffer) => backend.release(buffer),
    write: (target, bytes) => backend.write(target, bytes),
    submit: (ops) => backend.submit(ops),
    copy: (target, source, byteLength) => {
      parts.enter();
      const { driver, stream } = parts;
      const code = driver.cuMemcpyAsync(addressOf(target), addressOf(source), byteLength, stream);
      check(driver, 'cuMemcpyAsync', code, 'measure the link');
    },
    measure: (enqueue) => parts.measure(enqueue),
  };
}
