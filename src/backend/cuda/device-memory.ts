import { SetupError } from '../../base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import type { MoveWithin } from '../backend.js';
import { notHeld, requireSpan } from '../buffer-checks.js';
import { check, cudaCodes, type DriverLibrary, describe } from './driver.js';
import type { LabelledRun } from './move-runs.js';
import { allocatePinned, freePinned, type PinnedMemory } from './pinned-memory.js';

/** Buffers of one context: in device memory, or in mapped host memory. The context is current in every call. */
export class DeviceMemory {
  readonly #driver: DriverLibrary;
  readonly #stream: bigint;
  readonly #buffers = new Map<DeviceBuffer, PinnedMemory | null>();
  #deviceBytes = 0;
  #devicePeakBytes = 0;
  #pinnedBytes = 0;

  constructor(driver: DriverLibrary, stream: bigint) {
    this.#driver = driver;
    this.#stream = stream;
  }

  /** Bytes of buffers now and at most so far; neither counts what the driver adds to fill pages. */
  get usage(): { deviceBytes: number; devicePeakBytes: number; pinnedBytes: number } {
    return {
      deviceBytes: this.#deviceBytes,
      devicePeakBytes: this.#devicePeakBytes,
      pinnedBytes: this.#pinnedBytes,
    };
  }

  /** Zeroed device memory; aligned to 256 by the driver. */
  allocate({ label, cause, byteLength }: AllocationRequest): DeviceBuffer {
    requireCount(label, byteLength);
    const driver = this.#driver;
    const room = new BigUint64Array(1);
    const size = Math.max(4, byteLength);
    const code = driver.cuMemAlloc_v2(room, size);
    if (code === cudaCodes.outOfMemory) {
      throw new SetupError(
        'out-of-memory',
        `Cannot allocate "${label}": the GPU refused ${byteLength} bytes (${this.#freeText()})`,
        { label, byteLength: String(byteLength) },
      );
    }
    check(driver, 'cuMemAlloc', code, `allocate "${label}"`);
    const address = Number(room[0]!);
    // Waited for, so that no copy of another stream can overtake the zeros.
    check(driver, 'cuMemsetD8Async', driver.cuMemsetD8Async(address, 0, size, this.#stream));
    check(driver, 'cuStreamSynchronize', driver.cuStreamSynchronize(this.#stream), `clear "${label}"`);
    const buffer = Object.freeze({ label, cause, address, byteLength });
    this.#buffers.set(buffer, null);
    this.#deviceBytes += byteLength;
    this.#devicePeakBytes = Math.max(this.#devicePeakBytes, this.#deviceBytes);
    return buffer;
  }

  /** Host memory that kernels read over the link. */
  allocateMapped({ label, cause, byteLength }: AllocationRequest): {
    buffer: DeviceBuffer;
    memory: PinnedMemory;
  } {
    requireCount(label, byteLength);
    const memory = allocatePinned(this.#driver, label, Math.max(4, byteLength));
    return { buffer: this.adopt({ label, cause, byteLength }, memory), memory };
  }

  /** Pinned memory that is already there becomes a buffer; it is freed with it. */
  adopt({ label, cause, byteLength }: AllocationRequest, memory: PinnedMemory): DeviceBuffer {
    const buffer = Object.freeze({ label, cause, address: memory.deviceAddress, byteLength });
    this.#buffers.set(buffer, memory);
    this.#pinnedBytes += byteLength;
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    const memory = this.#buffers.get(buffer);
    if (memory === undefined) {
      throw notHeld(buffer);
    }
    this.#buffers.delete(buffer);
    if (memory === null) {
      this.#deviceBytes -= buffer.byteLength;
      check(this.#driver, 'cuMemFree', this.#driver.cuMemFree_v2(buffer.address));
    } else {
      this.#pinnedBytes -= buffer.byteLength;
      check(this.#driver, 'cuMemFreeHost', freePinned(this.#driver, memory));
    }
  }

  /** Frees everything; what the driver answers no longer matters. */
  releaseAll(): void {
    for (const [buffer, memory] of this.#buffers) {
      if (memory === null) this.#driver.cuMemFree_v2(buffer.address);
      else freePinned(this.#driver, memory);
    }
    this.#buffers.clear();
    this.#deviceBytes = 0;
    this.#pinnedBytes = 0;
  }

  /** The device address of a span. Foreign code would follow a stale one: a released buffer must not reach it. */
  address(action: string, span: Span): number {
    requireSpan(action, span, this.#buffers.has(span.buffer));
    return span.buffer.address + span.byteOffset;
  }

  /** Addresses of a move. Throws `RangeError` where the lengths differ. */
  runOf({ from, to }: MoveWithin): LabelledRun {
    if (from.byteLength !== to.byteLength) {
      throw new RangeError(
        `Cannot move ${from.byteLength} bytes of "${from.buffer.label}": "${to.buffer.label}" has room for ${to.byteLength}`,
      );
    }
    const [source, target] = [this.address('move', from), this.address('move', to)];
    return { source, target, byteLength: from.byteLength, label: to.buffer.label };
  }

  /** Of the whole device, now. */
  get freeBytes(): number {
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
    check(this.#driver, 'cuMemGetInfo', this.#driver.cuMemGetInfo_v2(free, total));
    return Number(free[0]!);
  }

  #freeText(): string {
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
    const code = this.#driver.cuMemGetInfo_v2(free, total);
    return code === 0
      ? `${free[0]} of ${total[0]} bytes are free`
      : describe(this.#driver, 'cuMemGetInfo', code);
  }
}

function requireCount(label: string, byteLength: number): void {
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw new RangeError(`Cannot allocate "${label}": ${byteLength} is no count of bytes`);
  }
}
