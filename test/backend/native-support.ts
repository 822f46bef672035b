import type { NativeBackend } from '../../src/backend/cpu/native-backend.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import type { Span } from '../../src/memory/buffers.js';
import { spanOf } from '../../src/memory/buffers.js';

/** Why native tests do not run here, for the name of the skipped test; null where they do. */
export function whyNoNative(): string | null {
  const status = nativeStatus();
  return status.available ? null : status.reason;
}

/** A buffer that holds the array. */
export function put(
  backend: NativeBackend,
  array: Float32Array | Int32Array | Uint32Array | Uint8Array,
): Span {
  const buffer = backend.allocate({ label: 'test', cause: 'workspace', byteLength: array.byteLength });
  const span = spanOf(buffer);
  backend.write(span, new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  return span;
}

export async function floats(backend: NativeBackend, span: Span): Promise<Float32Array> {
  return new Float32Array((await backend.read(span)).buffer);
}
