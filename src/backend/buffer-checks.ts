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

/**
 * Throws `RangeError` for a span of a released or foreign buffer (`held`: false), and for one that leaves its buffer: foreign code
 * would follow its address. `action` ends "Cannot …".
 */
export function requireSpan(action: string, { buffer, byteOffset, byteLength }: Span, held: boolean): void {
  if (!held) {
    throw new RangeError(
      `Cannot ${action} "${buffer.label}": it is not a buffer of this backend, or released`,
    );
  }
  if (byteOffset < 0 || byteLength < 0 || byteOffset + byteLength > buffer.byteLength) {
    throw new RangeError(
      `Cannot ${action} ${byteLength} bytes at ${byteOffset} of "${buffer.label}": it holds ${buffer.byteLength}`,
    );
  }
}
