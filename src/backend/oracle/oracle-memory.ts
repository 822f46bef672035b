import { DefectError, ExecutionError } from '../../base/errors.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import { notHeld, requireSpan } from '../buffer-checks.js';

const alignment = 64;

/** Buffers of the oracle: an `ArrayBuffer` each, under addresses that only ever grow, so that none is used twice. */
export class OracleMemory {
  readonly #bytes = new Map<DeviceBuffer, ArrayBuffer>();
  #nextAddress = alignment;

  allocate(request: AllocationRequest): DeviceBuffer {
    const { label, cause, byteLength } = request;
    if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
      throw new RangeError(`Cannot allocate "${label}": ${byteLength} is no count of bytes`);
    }
    const buffer = Object.freeze({ label, cause, address: this.#nextAddress, byteLength });
    this.#bytes.set(buffer, new ArrayBuffer(byteLength));
    this.#nextAddress += Math.ceil((byteLength + 1) / alignment) * alignment;
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    if (this.#bytes.delete(buffer)) return;
    throw notHeld(buffer);
  }

  releaseAll(): void {
    this.#bytes.clear();
  }

  /** The bytes of a span. Throws `RangeError` for a released or foreign buffer and for a span that leaves its buffer. */
  bytes(span: Span): Uint8Array {
    const { buffer, byteOffset, byteLength } = span;
    const bytes = this.#bytes.get(buffer);
    requireSpan('use', span, bytes !== undefined);
    return new Uint8Array(bytes!, byteOffset, byteLength);
  }

  floats(span: Span): Float32Array {
    const bytes = this.#words(span);
    return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  }

  integers(span: Span): Int32Array {
    const bytes = this.#words(span);
    return new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
  }

  #words(span: Span): Uint8Array {
    const bytes = this.bytes(span);
    if (bytes.byteOffset % 4 === 0 && bytes.byteLength % 4 === 0) return bytes;
    throw new DefectError(`Span of "${span.buffer.label}" does not hold whole aligned words`, {
      byteOffset: span.byteOffset,
      byteLength: span.byteLength,
    });
  }
}

/** What a backend says once it is closed. */
export function closedError(action: string): ExecutionError {
  return new ExecutionError('backend-closed', `Cannot ${action}: the oracle backend is closed`);
}
