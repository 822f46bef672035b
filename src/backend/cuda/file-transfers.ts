import { DefectError } from '../../base/errors.js';
import { type TransposedReader, transposeTile } from '../../checkpoint/transpose.js';
import type { Runs, StoredShape, Transfer, TransferFile, TransferReport } from '../backend.js';
import { transferIntoMemory } from '../memory-file-transfer.js';
import type { BouncePool } from './bounce-pool.js';
import type { Completion } from './completion.js';
import { check, type DriverLibrary } from './driver.js';
import type { HostMirrors, MirroredRegion } from './host-mirrors.js';
import type { Launcher } from './launcher.js';
import { type LabelledRun, movesTogether, piecesOf, planMoveRuns, runBytes, writeRuns } from './move-runs.js';

/** Part of a transfer that one bounce buffer takes. */
interface Part {
  readonly file: TransferFile;
  readonly position: number;
  readonly byteLength: number;
  readonly deviceAddress: number;
  /** In the bounce buffer. */
  readonly at: number;
}

/** A transfer whose target was looked up. */
export interface AddressedTransfer {
  readonly transfer: Transfer;
  readonly deviceAddress: number;
}

export interface FileTransferParts {
  readonly driver: DriverLibrary;
  readonly enter: () => void;
  readonly completion: Completion;
  readonly bounce: BouncePool;
  readonly mirrors: HostMirrors;
  readonly stream: bigint;
  /** Enqueues kernels on that stream. */
  readonly launcher: Launcher;
}

/** A transfer whose bytes lie in a mirror. */
interface MirroredTransfer extends LabelledRun {
  readonly region: MirroredRegion;
}

/**
 * File regions to device memory: copied at once from the mirror in pinned memory where there is one, many small ones by one
 * kernel; else read into bounce buffers and copied from there, several buffers on their way at a time.
 */
export class FileTransfers {
  readonly #parts: FileTransferParts;
  /** What kernels here bring now, the oldest first, by the label of its first buffer. */
  readonly #moving = new Set<{ readonly label: string }>();

  constructor(parts: FileTransferParts) {
    this.#parts = parts;
  }

  /** Label of the first buffer of what the oldest kernel here brings; null where none runs. */
  get movingLabel(): string | null {
    const [oldest] = this.#moving;
    return oldest?.label ?? null;
  }

  /** Resolves when every byte has landed. */
  async run(transfers: readonly AddressedTransfer[]): Promise<TransferReport> {
    const start = process.hrtime.bigint();
    const { driver, enter, completion, mirrors, stream } = this.#parts;
    const unmirrored: AddressedTransfer[] = [];
    const mirrored: MirroredTransfer[] = [];
    let requestedBytes = 0;
    let copied = false;
    enter();
    for (const one of transfers) {
      const { file, position, target, runs } = one.transfer;
      requestedBytes += target.byteLength;
      if (target.byteLength === 0) continue;
      if (runs !== undefined) {
        const mirror = mirrors.find(file, position, runs.count * runs.pitch);
        if (mirror === null) throw new DefectError(`Cannot copy runs to "${target.buffer.label}": no mirror`);
        const copy = copyOfRuns(runs, mirror.mirrorAddress + BigInt(mirror.offset), one.deviceAddress);
        const code = driver.cuMemcpy2DAsync_v2(copy, stream);
        check(driver, 'cuMemcpy2DAsync', code, `copy weights to "${target.buffer.label}"`);
        copied = true;
        continue;
      }
      const region = mirrors.find(file, position, target.byteLength);
      if (region === null) {
        unmirrored.push(one);
        continue;
      }
      // Thousands a pass of a prompt: nothing is copied or looked up twice.
      const { byteLength, buffer } = target;
      mirrored.push({
        source: region.deviceAddress,
        target: one.deviceAddress,
        byteLength,
        label: buffer.label,
        region,
      });
    }
    const moved = this.#together(mirrored);
    if (moved === null) this.#eachAlone(mirrored);
    const landing = copied || mirrored.length > 0 ? completion.after(stream) : Promise.resolve();
    const outcomes = await Promise.allSettled([
      moved === null ? landing : landing.finally(moved),
      ...this.#batches(unmirrored).map((b) => this.#move(b)),
    ]);
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
    return { requestedBytes, elapsedNs: process.hrtime.bigint() - start };
  }

  /** Moves runs within the device, behind what `launcher` has enqueued; resolves when they have landed. */
  async within(runs: readonly LabelledRun[], launcher: Launcher): Promise<void> {
    const { bounce, enter, completion } = this.#parts;
    for (let begin = 0; begin < runs.length; ) {
      const list = await bounce.take();
      const moving = { label: runs[begin]!.label };
      this.#moving.add(moving);
      try {
        const part = runs.slice(begin, begin + Math.floor(list.bytes.byteLength / runBytes));
        while (part.length > 1 && piecesOf(part) * runBytes > list.bytes.byteLength) part.length >>= 1;
        begin += part.length;
        writeRuns(part, list.bytes);
        enter();
        launcher.run([planMoveRuns(list.deviceAddress, piecesOf(part))]);
        await completion.after(launcher.stream);
      } finally {
        this.#moving.delete(moving);
        bounce.give(list);
      }
    }
  }

  /** Reads file regions straight into host memory. */
  async readInto(file: TransferFile, position: number, bytes: Uint8Array): Promise<void> {
    const step = this.#parts.bounce.byteLength;
    const pieces: Uint8Array[] = [];
    for (let at = 0; at < bytes.byteLength; at += step) pieces.push(bytes.subarray(at, at + step));
    await transferIntoMemory(
      pieces.map((piece, index) => fileRegion(file, position + index * step, piece.byteLength, index)),
      ({ target }) => pieces[target.byteOffset]!,
    );
  }

  #eachAlone(mirrored: readonly MirroredTransfer[]): void {
    const { driver, stream } = this.#parts;
    for (const { target, byteLength, label, region } of mirrored) {
      const from = region.mirrorAddress + BigInt(region.offset);
      const code = driver.cuMemcpyAsync(target, from, byteLength, stream);
      check(driver, 'cuMemcpyAsync', code, `copy weights to "${label}"`);
    }
  }

  /**
   * Brings many small regions by kernels that read a list of them. Returns what is to be called when they have landed, or
   * null where a copy for each is better, or no memory for the list is free.
   */
  #together(runs: readonly MirroredTransfer[]): (() => void) | null {
    const { bounce, launcher } = this.#parts;
    if (!movesTogether(runs)) return null;
    const pieces = piecesOf(runs);
    if (pieces * runBytes > bounce.byteLength) return null;
    const list = bounce.tryTake();
    if (list === null) return null;
    const moving = { label: runs[0]!.label };
    const landed = (): void => {
      this.#moving.delete(moving);
      bounce.give(list);
    };
    this.#moving.add(moving);
    try {
      writeRuns(runs, list.bytes);
      launcher.run([planMoveRuns(list.deviceAddress, pieces)]);
    } catch (error) {
      landed();
      throw error;
    }
    return landed;
  }

  #batches(transfers: readonly AddressedTransfer[]): Part[][] {
    const limit = this.#parts.bounce.byteLength;
    const batches: Part[][] = [];
    let room = 0;
    for (const { transfer, deviceAddress } of transfers) {
      const { file, position, target } = transfer;
      for (let done = 0; done < target.byteLength; ) {
        if (room === 0) {
          batches.push([]);
          room = limit;
        }
        const byteLength = Math.min(room, target.byteLength - done);
        batches.at(-1)!.push({
          file,
          position: position + done,
          byteLength,
          deviceAddress: deviceAddress + done,
          at: limit - room,
        });
        done += byteLength;
        room -= byteLength;
      }
    }
    return batches;
  }

  async #move(batch: readonly Part[]): Promise<void> {
    const { driver, enter, completion, bounce, stream } = this.#parts;
    const memory = await bounce.take();
    try {
      await transferIntoMemory(
        batch.map((part, index) => fileRegion(part.file, part.position, part.byteLength, index)),
        ({ target }) => {
          const part = batch[target.byteOffset]!;
          return memory.bytes.subarray(part.at, part.at + part.byteLength);
        },
      );
      enter();
      for (const part of batch) {
        const from = memory.hostAddress + BigInt(part.at);
        const code = driver.cuMemcpyAsync(part.deviceAddress, from, part.byteLength, stream);
        check(driver, 'cuMemcpyAsync', code, 'copy file regions to the GPU');
      }
      await completion.after(stream);
    } finally {
      bounce.give(memory);
    }
  }
}

/** Reads a matrix into host memory as its transpose: while it is read where `reader` can, else in a second step. */
export async function readTurned(
  transfers: FileTransfers,
  file: TransferFile,
  position: number,
  target: Uint8Array,
  { rows, columns, elementBytes }: StoredShape,
  reader: TransposedReader | undefined,
): Promise<void> {
  const { path, descriptor } = file;
  if (reader !== undefined) {
    return reader({ path, descriptor, position, rows, columns, elementBytes }, target);
  }
  const source = new Uint8Array(target.byteLength);
  await transfers.readInto(file, position, source);
  const result = new ArrayBuffer(target.byteLength);
  transposeTile(source.buffer, result, rows, columns, elementBytes);
  target.set(new Uint8Array(result));
}

const hostMemory = 1n;
const deviceMemory = 2n;

/** CUDA_MEMCPY2D of cuda.h: source x, y, kind, host, device, array, pitch; the same of the target; width, height. */
export function copyOfRuns(runs: Runs, mirror: bigint, deviceAddress: number): BigUint64Array {
  const { offset, count, byteLength, pitch } = runs;
  const source = [0n, 0n, hostMemory, mirror + BigInt(offset), 0n, 0n, BigInt(pitch)];
  const target = [0n, 0n, deviceMemory, 0n, BigInt(deviceAddress), 0n, BigInt(byteLength)];
  return BigUint64Array.of(...source, ...target, BigInt(byteLength), BigInt(count));
}

/** A transfer whose target is known by its index alone: where the bytes go is decided by who asked. */
function fileRegion(file: TransferFile, position: number, byteLength: number, index: number): Transfer {
  const buffer = { label: file.path, cause: 'staging', address: 0, byteLength } as const;
  return { file, position, target: { buffer, byteOffset: index, byteLength } };
}
