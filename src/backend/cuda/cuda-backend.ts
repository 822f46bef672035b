import { ExecutionError } from '../../base/errors.js';
import type { TransposedReader } from '../../checkpoint/transpose.js';
import type { BudgetComponent } from '../../memory/budget.js';
import type { AllocationRequest, DeviceBuffer, Span } from '../../memory/buffers.js';
import type {
  Backend,
  BackendInfo,
  DeviceRates,
  HostTier,
  LandedBytes,
  StoredShape,
  Transfer,
  TransferFile,
  TransferReport,
} from '../backend.js';
import { encodePlaced } from '../encoded-program.js';
import type { PlacedOp } from '../ops.js';
import { BouncePool } from './bounce-pool.js';
import { Completion } from './completion.js';
import type { DeviceFacts } from './device.js';
import { DeviceMemory } from './device-memory.js';
import { contextOverheads, SampledWatch } from './device-watch.js';
import { check, type DriverLibrary, describe, isFatal } from './driver.js';
import { FileTransfers, readTurned } from './file-transfers.js';
import { fewestGraphOps, GraphCache } from './graph-cache.js';
import { HostMirrors } from './host-mirrors.js';
import type { KernelModules } from './kernels.js';
import { type LaunchFacts, largestRowsVariant, type PlanChoices, statusWords } from './launch.js';
import { Launcher } from './launcher.js';
import { linkBench } from './link-bench.js';
import { measureLink } from './measure-link.js';
import { MemorySampler } from './memory-sampler.js';
import { readUse } from './monitor.js';
import { allocatePinned, fillPinned, type PinnedMemory } from './pinned-memory.js';
import { attentionScratchRows } from './plan-attention.js';
import { planLaunches } from './plan-launches.js';
import { ReadBacks, readBackBytes } from './read-backs.js';
import { fallibleOps, takeFailure } from './submission-errors.js';
import { suspectsOf, suspectsText, withMoves } from './suspects.js';

const nonBlocking = 1;
/** Regions of 4 MiB keep a PCIe link busy; eight of them keep four readers and the copy engine busy at once. */
const bounceBytes = 4 * 1024 * 1024;
const bounceCount = 8;

export interface CudaParts {
  readonly driver: DriverLibrary;
  readonly device: DeviceFacts;
  readonly context: bigint;
  readonly modules: KernelModules;
  /** Device memory of `nativeRoomBytes`; absent in portable numerics. */
  readonly nativeRoom?: number | null;
  /** Turns matrices while it reads them, where there is native code for it. */
  readonly readTransposed?: TransposedReader | undefined;
  readonly info: BackendInfo;
  /** False: every submission is planned and launched kernel by kernel. */
  readonly graphs: boolean;
  /** Kernels that say so start before the one in front has ended, where they can. */
  readonly overlap: boolean;
  /** Whether device and driver can. */
  readonly canOverlap: boolean;
  /** Device memory of context and kernels, as measured at opening; null where it cannot be measured. */
  readonly contextBytes: number | null;
  /** What all processes used of the device before the context was made; null where it cannot be measured. */
  readonly baselineBytes?: number | null;
}

/** One GPU as a `Backend`. Made by `openCuda`, with its context current. */
export class CudaBackend implements Backend {
  readonly info: BackendInfo;
  readonly device: DeviceFacts;
  readonly parallelism = attentionScratchRows;
  readonly addressableBytes: number;
  readonly overheads: readonly BudgetComponent[];
  readonly hostTier: HostTier;
  readonly deviceWatch: SampledWatch;
  readonly #driver: DriverLibrary;
  readonly #context: bigint;
  readonly #memory: DeviceMemory;
  readonly #completion: Completion;
  readonly #launcher: Launcher;
  readonly #graphs: GraphCache | null;
  readonly #modules: KernelModules;
  #facts: LaunchFacts;
  readonly #canOverlap: boolean;
  readonly #status: PinnedMemory;
  readonly #statusWords: Uint32Array;
  readonly #bounce: BouncePool;
  readonly #readBacks: ReadBacks;
  readonly #transfers: FileTransfers;
  readonly #mirrors = new HostMirrors();
  readonly #readTransposed: TransposedReader | undefined;
  readonly #computing: bigint;
  readonly #copying: bigint;
  readonly #pending = new Set<Promise<unknown>>();
  readonly #fallibleOf = new WeakMap<readonly PlacedOp[], readonly number[]>();
  /** Submissions that have not ended, the oldest first. */
  readonly #running = new Set<{ readonly ops: readonly PlacedOp[] }>();
  #fatal: ExecutionError | null = null;
  #closing: Promise<void> | null = null;

  constructor(parts: CudaParts) {
    const { driver, device, context, modules, info, graphs, overlap, canOverlap, contextBytes } = parts;
    this.#driver = driver;
    this.#context = context;
    this.device = device;
    this.info = Object.freeze(info);
    this.addressableBytes = device.totalBytes;
    this.overheads = contextOverheads(contextBytes);
    this.#computing = this.#stream();
    this.#copying = this.#stream();
    this.#memory = new DeviceMemory(driver, this.#computing);
    this.#completion = new Completion(driver, this.#enter, this.#failed);
    this.#status = allocatePinned(driver, 'status words', statusWords * 4);
    this.#statusWords = new Uint32Array(this.#status.bytes.buffer).fill(0);
    this.#facts = {
      architecture: device.architecture,
      overlaps: overlap && canOverlap,
      multiprocessors: device.multiprocessors,
      sharedBytes: device.sharedBytes,
      statusAddress: this.#status.deviceAddress,
      ...(parts.nativeRoom == null ? {} : { nativeRoom: parts.nativeRoom }),
    };
    this.#canOverlap = canOverlap;
    this.#modules = modules;
    this.#readTransposed = parts.readTransposed;
    this.#launcher = new Launcher(driver, modules, this.#computing);
    this.#graphs = graphs ? new GraphCache(driver, this.#launcher, this.#computing) : null;
    this.#bounce = new BouncePool(driver, this.#enter, bounceBytes, bounceCount);
    this.#readBacks = new ReadBacks(driver, this.#enter, this.#completion, this.#computing);
    this.#transfers = new FileTransfers({
      driver,
      enter: this.#enter,
      completion: this.#completion,
      bounce: this.#bounce,
      mirrors: this.#mirrors,
      stream: this.#copying,
      launcher: new Launcher(driver, modules, this.#copying),
    });
    this.hostTier = {
      directRows: largestRowsVariant,
      bounceBytes: bounceBytes * bounceCount + readBackBytes + statusWords * 4,
      mirror: (...what) => this.#mirror(...what),
      moveWithin: async (moves) => {
        this.#begin('move');
        const runs = moves.map((one) => this.#memory.runOf(one));
        await this.#track(this.#transfers.within(runs, this.#launcher));
      },
      readLater: (source) => this.#readLater(source),
      measureLink: (rowBytes) => this.#measureLink(rowBytes),
    };
    // Last: it counts as open from here on, and nothing that can fail comes behind.
    this.deviceWatch = new SampledWatch(
      device.index,
      new MemorySampler(
        device.pciBusId,
        readUse(device.pciBusId, parts.baselineBytes ?? null, () => this.#memory.usage.deviceBytes),
      ),
      () => this.usage,
    );
  }

  /** Buffers and pinned memory now; graphs in use and how often one was replayed. */
  get usage() {
    const { deviceBytes, devicePeakBytes, pinnedBytes } = this.#memory.usage;
    return {
      deviceBytes,
      devicePeakBytes,
      pinnedBytes:
        pinnedBytes + this.#bounce.pinnedBytes + this.#readBacks.pinnedBytes + this.#status.bytes.byteLength,
      graphs: this.#graphs?.graphs ?? 0,
      graphReplays: this.#graphs?.replays ?? 0,
    };
  }

  /** Plans submissions so from here on, for measurements; nothing may be running. Recorded graphs are dropped. */
  planWith(choices: PlanChoices): void {
    this.#begin('change how submissions are planned');
    const { sharedCarveout, ...facts } = choices;
    const overlaps = (facts.overlaps ?? this.#facts.overlaps) && this.#canOverlap;
    this.#facts = { ...this.#facts, ...facts, overlaps };
    if (sharedCarveout !== undefined) this.#modules.preferShared(sharedCarveout);
    this.#graphs?.clear();
  }

  get freeBytes(): number {
    this.#begin('ask for free memory');
    return this.#memory.freeBytes;
  }

  allocate(request: AllocationRequest): DeviceBuffer {
    this.#begin('allocate');
    return this.#memory.allocate(request);
  }

  release(buffer: DeviceBuffer): void {
    if (this.#closing !== null) throw closed('release');
    this.#enter();
    this.#mirrors.remove(buffer);
    try {
      this.#memory.release(buffer);
    } catch (error) {
      // After a failure of the GPU the driver answers every call with it; closing the context frees all.
      if (this.#fatal === null) throw error;
    }
  }

  submit(ops: readonly PlacedOp[]): Promise<void> {
    this.#begin('submit');
    if (ops.length === 0) return Promise.resolve();
    const plan = () => planLaunches(ops, this.#facts);
    const running = { ops };
    this.#running.add(running);
    try {
      if (this.#graphs === null || ops.length < fewestGraphOps) this.#launcher.run(plan());
      else this.#graphs.run(() => encodePlaced(ops), plan, Object.isFrozen(ops) ? ops : null);
    } catch (error) {
      const code = error instanceof ExecutionError ? error.data.cudaCode : null;
      if (isFatal(code)) throw this.#failed('cuLaunchKernelEx', code);
      this.#running.delete(running);
      throw error;
    }
    const fallible = this.#fallible(ops);
    return this.#track(
      this.#completion.after(this.#computing).then(() => {
        this.#running.delete(running);
        const failure = takeFailure(this.#statusWords, ops, fallible);
        if (failure !== null) throw failure;
      }),
    );
  }

  write(target: Span, bytes: Uint8Array): void {
    this.#begin('write');
    const address = this.#memory.address('write', target);
    if (bytes.byteLength !== target.byteLength) {
      throw new RangeError(
        `Cannot write ${bytes.byteLength} bytes to "${target.buffer.label}": the span holds ${target.byteLength}`,
      );
    }
    if (bytes.byteLength === 0) return;
    // From pageable memory: the driver has copied the bytes when it returns.
    const code = this.#driver.cuMemcpyHtoDAsync_v2(address, bytes, bytes.byteLength, this.#computing);
    check(this.#driver, 'cuMemcpyHtoDAsync', code, `write "${target.buffer.label}"`);
  }

  async read(source: Span): Promise<Uint8Array> {
    this.#begin('read');
    const address = this.#memory.address('read', source);
    return this.#track(this.#readBacks.read(address, source.byteLength));
  }

  async transfer(transfers: readonly Transfer[]): Promise<TransferReport> {
    this.#begin('transfer');
    const addressed = transfers.map((transfer) => ({
      transfer,
      deviceAddress: this.#memory.address('transfer', transfer.target),
    }));
    return this.#track(this.#transfers.run(addressed));
  }

  /** Files are read once, when weights are loaded; there is nothing to hint at. */
  prefetch(_file: TransferFile, _regions: readonly { position: number; byteLength: number }[]): void {
    this.#begin('prefetch');
  }

  close(): Promise<void> {
    this.#closing ??= Promise.allSettled([...this.#pending, this.deviceWatch.stop()]).then(() => {
      this.#enter();
      this.#driver.cuCtxSynchronize();
      this.#graphs?.clear();
      this.#memory.releaseAll();
      this.#bounce.close();
      this.#readBacks.close();
      this.#driver.cuMemFreeHost(this.#status.hostAddress);
      this.#completion.close();
      this.#launcher.close();
      this.#driver.cuStreamDestroy_v2(this.#computing);
      this.#driver.cuStreamDestroy_v2(this.#copying);
      this.#driver.cuCtxDestroy_v2(this.#context);
    });
    return this.#closing;
  }

  /** Milliseconds on the device of what `enqueue` submits, by events around it. */
  async measure(enqueue: () => Promise<unknown>): Promise<number> {
    this.#begin('measure');
    const [began, ended] = [0, 0].map(() => {
      const room = new BigUint64Array(1);
      check(this.#driver, 'cuEventCreate', this.#driver.cuEventCreate(room, 0));
      return room[0]!;
    });
    check(this.#driver, 'cuEventRecord', this.#driver.cuEventRecord(began!, this.#computing));
    const running = enqueue();
    check(this.#driver, 'cuEventRecord', this.#driver.cuEventRecord(ended!, this.#computing));
    const marked = this.#completion.after(this.#computing);
    await running;
    await marked;
    this.#enter();
    const elapsed = new Float32Array(1);
    check(this.#driver, 'cuEventElapsedTime', this.#driver.cuEventElapsedTime(elapsed, began!, ended!));
    for (const event of [began!, ended!]) this.#driver.cuEventDestroy_v2(event);
    return elapsed[0]!;
  }

  async #readLater(source: Span): Promise<LandedBytes> {
    this.#begin('read');
    const address = this.#memory.address('read', source);
    return this.#track(this.#readBacks.readLater(address, source.byteLength));
  }

  async #mirror(
    file: TransferFile,
    position: number,
    request: AllocationRequest,
    transposed?: StoredShape,
  ): Promise<DeviceBuffer> {
    this.#begin('mirror');
    const fill = (bytes: Uint8Array): Promise<void> =>
      transposed === undefined
        ? this.#transfers.readInto(file, position, bytes)
        : readTurned(this.#transfers, file, position, bytes, transposed, this.#readTransposed);
    const { label, byteLength } = request;
    const filled = fillPinned(this.#driver, this.#enter, label, byteLength, fill).then((memory) => ({
      memory,
      buffer: this.#memory.adopt(request, memory),
    }));
    const { memory, buffer } = await this.#track(filled);
    this.#mirrors.add(file, position, memory.hostAddress, buffer);
    return buffer;
  }

  #fallible(ops: readonly PlacedOp[]): readonly number[] {
    const known = this.#fallibleOf.get(ops);
    if (known !== undefined) return known;
    const fallible = fallibleOps(ops);
    if (Object.isFrozen(ops)) this.#fallibleOf.set(ops, fallible);
    return fallible;
  }

  #measureLink(rowBytes: number): Promise<DeviceRates> {
    this.#begin('measure the link of');
    const parts = {
      driver: this.#driver,
      stream: this.#computing,
      enter: this.#enter,
      allocateMapped: (request: AllocationRequest) => this.#memory.allocateMapped(request),
      measure: (enqueue: () => Promise<unknown>) => this.measure(enqueue),
    };
    return measureLink(linkBench(this, parts), rowBytes);
  }

  #stream(): bigint {
    const room = new BigUint64Array(1);
    check(this.#driver, 'cuStreamCreate', this.#driver.cuStreamCreate(room, nonBlocking));
    return room[0]!;
  }

  readonly #enter = (): void => {
    this.#driver.cuCtxSetCurrent(this.#context);
  };

  readonly #failed = (call: string, code: number): ExecutionError => {
    if (this.#fatal !== null) return this.#fatal;
    const [oldest] = this.#running;
    const suspects = withMoves(
      oldest === undefined ? null : suspectsOf(oldest.ops, this.#facts),
      this.#transfers.movingLabel,
    );
    this.#fatal = new ExecutionError(
      'gpu-failed',
      `Cannot go on with GPU ${this.device.index}: ${describe(this.#driver, call, code)}${suspects === null ? '' : suspectsText(suspects)}`,
      { call, cudaCode: code, ...suspects },
    );
    return this.#fatal;
  };

  #begin(action: string): void {
    if (this.#closing !== null) throw closed(action);
    if (this.#fatal !== null) throw this.#fatal;
    this.deviceWatch.require();
    this.#enter();
  }

  /** Closing waits for it. */
  #track<Value>(promise: Promise<Value>): Promise<Value> {
    this.#pending.add(promise);
    const done = (): void => {
      this.#pending.delete(promise);
    };
    promise.then(done, done);
    return promise;
  }
}

function closed(action: string): ExecutionError {
  return new ExecutionError('backend-closed', `Cannot ${action}: the CUDA backend is closed`);
}
