import type { Backend, BackendInfo, TransferReport } from '../../src/backend/backend.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../src/memory/buffers.js';

/** A backend that computes nothing and remembers what it was asked for. */
export class RecordingBackend implements Backend {
  readonly info: BackendInfo = {
    name: 'recording',
    kernels: 'none',
    reason: 'a test',
    numerics: 'portable',
    threads: 1,
    kernelDigest: null,
  };
  readonly parallelism = 3;
  readonly addressableBytes = Number.POSITIVE_INFINITY;
  readonly ops: PlacedOp[] = [];
  readonly writes: { target: Span; bytes: Uint8Array }[] = [];
  readonly held = new Set<DeviceBuffer>();
  readonly requests: AllocationRequest[] = [];
  /** Allocations from this one on fail. */
  failFrom = Number.POSITIVE_INFINITY;
  #address = 64;

  allocate(request: AllocationRequest): DeviceBuffer {
    if (this.requests.length >= this.failFrom) throw new Error(`No memory for "${request.label}"`);
    this.requests.push(request);
    const buffer = { ...request, address: this.#address };
    this.#address += Math.ceil(request.byteLength / 64) * 64 + 64;
    this.held.add(buffer);
    return buffer;
  }

  release(buffer: DeviceBuffer): void {
    if (!this.held.delete(buffer)) throw new Error(`"${buffer.label}" is not held`);
  }

  async submit(ops: readonly PlacedOp[]): Promise<void> {
    this.ops.push(...ops);
  }

  write(target: Span, bytes: Uint8Array): void {
    if (bytes.byteLength > target.byteLength) throw new RangeError('Write beyond its span');
    this.writes.push({ target, bytes: bytes.slice() });
  }

  async read(source: Span): Promise<Uint8Array> {
    return new Uint8Array(source.byteLength);
  }

  async transfer(): Promise<TransferReport> {
    return { requestedBytes: 0, elapsedNs: 0n };
  }

  prefetch(): void {}

  async close(): Promise<void> {}
}
