import type { HoldCause } from './causes.js';

/** Bytes that a backend holds. `address` means something to the backend alone (pointer, memory offset, handle). */
export interface DeviceBuffer {
  readonly label: string;
  readonly cause: HoldCause;
  readonly address: number;
  readonly byteLength: number;
}

/** Part of a buffer. Every operand of an op is a span; alignment to 4 bytes is required, to 64 preferred. */
export interface Span {
  readonly buffer: DeviceBuffer;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** What `allocate` asks for; `causes` feed the ledger. */
export interface AllocationRequest {
  readonly label: string;
  readonly cause: HoldCause;
  readonly byteLength: number;
}

/** Source of buffers; implemented by every backend, wrapped by the budget. */
export interface Allocator {
  /** Returns zeroed bytes aligned to 64. Throws `SetupError` `out-of-memory` where the memory cannot be had. */
  allocate(request: AllocationRequest): DeviceBuffer;
  release(buffer: DeviceBuffer): void;
}

/** The whole of a buffer as a span. */
export function spanOf(buffer: DeviceBuffer): Span {
  return { buffer, byteOffset: 0, byteLength: buffer.byteLength };
}

/** A part of a span; throws `RangeError` when it would leave the span. */
export function subspan(span: Span, byteOffset: number, byteLength: number): Span {
  if (byteOffset < 0 || byteLength < 0 || byteOffset + byteLength > span.byteLength) {
    throw new RangeError(
      `Cannot take ${byteLength} bytes at ${byteOffset} of "${span.buffer.label}": it holds ${span.byteLength} bytes`,
    );
  }
  return { buffer: span.buffer, byteOffset: span.byteOffset + byteOffset, byteLength };
}
