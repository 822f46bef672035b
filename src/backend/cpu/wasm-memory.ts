import { SetupError } from '../../base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import { notHeld, requireSpan } from '../buffer-checks.js';
import { type SharedMemory, wasm } from './wasm-api.js';
import { WasmHeap } from './wasm-heap.js';
import { guardBytes, pageBytes, scratchAt } from './wasm-layout.js';

/** Least size of a memory for `threads` threads: their scratch and one page to give out. */
export function smallestMemoryBytes(threads: number): number {
  return (Math.ceil((scratchAt(threads) + guardBytes) / pageBytes) + 1) * pageBytes;
}

/**
 * The shared memory of the kernels and the buffers in it. The memory's largest size is reserved as address space;
 * it grows as buffers need it, and the system gives it pages as they are first touched.
 */
export class WasmMemory {
  readonly memory: SharedMemory;
  /** Bytes that buffers can take in all. */
  readonly capacityBytes: number;
  readonly #heap: WasmHeap;
  readonly #buffers = new Set<DeviceBuffer>();
  /** Bytes from here on were never given out, so they are still zero. */
  #freshFrom: number;

  /** Throws `SetupError` `out-of-memory` where the system does not give the address space. */
  constructor(threads: number, maximumBytes: number) {
    const maximum = Math.floor(maximumBytes / pageBytes);
    const initial = Math.ceil(scratchAt(threads) / pageBytes);
    try {
      this.memory = new wasm.Memory({ initial, maximum, shared: true });
    } catch (cause) {
      throw new SetupError(
        'out-of-memory',
        `Cannot open WebAssembly kernels: the system refused address space for ${maximum * pageBytes} bytes`,
        { maximumBytes: String(maximum * pageBytes) },
        { cause },
      );
    }
    this.#heap = new WasmHeap(scratchAt(threads), maximum * pageBytes - guardBytes);
    this.#freshFrom = this.#heap.begin;
    this.capacityBytes = this.#heap.end - this.#heap.begin;
  }

  allocate(request: AllocationRequest): DeviceBuffer {
    const { label, cause, byteLength } = request;
    if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
      throw new RangeError(`Cannot allocate "${label}": ${byteLength} is no count of bytes`);
    }
    const address = this.#heap.allocate(byteLength);
    if (address === null) throw this.#refusal(label, byteLength);
    const end = address + byteLength;
    try {
      this.#growTo(end + guardBytes);
    } catch (cause) {
      this.#heap.release(address);
      throw new SetupError(
        'out-of-memory',
        `Cannot allocate "${label}": the system refused ${byteLength} bytes`,
        { label, byteLength: String(byteLength) },
        { cause },
      );
    }
    const used = Math.min(end, this.#freshFrom) - address;
    if (used > 0) new Uint8Array(this.memory.buffer, address, used).fill(0);
    this.#freshFrom = Math.max(this.#freshFrom, end);
    const buffer = Object.freeze({ label, cause, address, byteLength });
    this.#buffers.add(buffer);
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    if (!this.#buffers.delete(buffer)) {
      throw notHeld(buffer);
    }
    this.#heap.release(buffer.address);
  }

  releaseAll(): void {
    for (const buffer of this.#buffers) this.#heap.release(buffer.address);
    this.#buffers.clear();
  }

  /** The bytes of a span; `action` is for the `RangeError` of a released or foreign buffer, or of a span too long. */
  bytes(action: string, span: Span): Uint8Array {
    requireSpan(action, span, this.#buffers.has(span.buffer));
    const { buffer, byteOffset, byteLength } = span;
    // The view is made anew each time, because growing a shared memory leaves older views at the older length.
    return new Uint8Array(this.memory.buffer, buffer.address + byteOffset, byteLength);
  }

  #growTo(byteLength: number): void {
    const missing = byteLength - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / pageBytes));
  }

  #refusal(label: string, byteLength: number): SetupError {
    const { heldBytes, largestFreeBytes } = this.#heap;
    return new SetupError(
      'out-of-memory',
      `Cannot allocate "${label}": ${byteLength} bytes do not fit, ${heldBytes} of the ${this.capacityBytes} bytes that WebAssembly kernels can address are held and the largest free range has ${largestFreeBytes}`,
      {
        label,
        byteLength: String(byteLength),
        heldBytes: String(heldBytes),
        addressableBytes: String(this.capacityBytes),
        largestFreeBytes: String(largestFreeBytes),
      },
    );
  }
}
