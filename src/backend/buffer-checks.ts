import type { DeviceBuffer, Span } from '../memory/buffers.js';

/** Throws `RangeError` where bytes are not as many as the span that they are to fill. */
export function requireFilling({ buffer, byteLength }: Span, bytes: Uint8Array): void {
  if (bytes.byteLength === byteLength) return;
  throw new RangeError(
    `Cannot write ${bytes.byteLength} bytes to "${buffer.label}": the span holds ${byteLength}`,
  );
}

/** For `release` of what a backend does not hold. */
export function notHeld({ label }: DeviceBuffer): RangeError {
  return new RangeError(`Cannot release "${label}": it is not a buffer of this backend, or already released`);
}
