import type { DeviceBuffer } from '../../memory/buffers.js';
import type { TransferFile } from '../backend.js';

interface Mirror {
  readonly path: string;
  readonly position: number;
  readonly byteLength: number;
  readonly hostAddress: bigint;
  readonly buffer: DeviceBuffer;
}

/** A region of pinned memory: what the driver calls the mirror that it lies in, how far in it, and what kernels call it. */
export interface MirroredRegion {
  readonly mirrorAddress: bigint;
  readonly offset: number;
  readonly deviceAddress: number;
}

/** Which regions of which files lie in pinned host memory. */
export class HostMirrors {
  readonly #mirrors: Mirror[] = [];

  add(file: TransferFile, position: number, hostAddress: bigint, buffer: DeviceBuffer): void {
    const mirror = { path: file.path, position, byteLength: buffer.byteLength, hostAddress, buffer };
    const at = this.#mirrors.findIndex((other) => after(other, mirror.path, mirror.position));
    this.#mirrors.splice(at < 0 ? this.#mirrors.length : at, 0, mirror);
  }

  remove(buffer: DeviceBuffer): void {
    const at = this.#mirrors.findIndex((mirror) => mirror.buffer === buffer);
    if (at >= 0) this.#mirrors.splice(at, 1);
  }

  /** Where a region lies, or null where no mirror holds all of it. */
  find(file: TransferFile, position: number, byteLength: number): MirroredRegion | null {
    let low = 0;
    let high = this.#mirrors.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (after(this.#mirrors[middle]!, file.path, position)) high = middle;
      else low = middle + 1;
    }
    const mirror = this.#mirrors[low - 1];
    if (mirror === undefined || mirror.path !== file.path) return null;
    const offset = position - mirror.position;
    if (offset + byteLength > mirror.byteLength) return null;
    return { mirrorAddress: mirror.hostAddress, offset, deviceAddress: mirror.buffer.address + offset };
  }
}

function after(mirror: Mirror, path: string, position: number): boolean {
  return mirror.path === path ? mirror.position > position : mirror.path > path;
}
