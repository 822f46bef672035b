import { CudaBackend, type CudaParts } from '../../src/backend/cuda/cuda-backend.js';
import type { DriverLibrary } from '../../src/backend/cuda/driver.js';
import { addressOf, driverFunctions } from '../../src/backend/cuda/foreign.js';
import { readKernelUnits } from '../../src/backend/cuda/kernel-sources.js';
import { KernelModules } from '../../src/backend/cuda/kernels.js';

/** What a fake driver is told to refuse, and from when on. */
export interface Faults {
  deviceBytes: number;
  pinnedBytes: number;
  /** Kernel whose launch is refused at once, with this code. */
  refused: { readonly kernel: string; readonly code: number } | null;
  /** Kernel behind whose launch every later call answers this code, as behind a failure on a GPU. */
  fatal: { readonly kernel: string; readonly code: number } | null;
  /** Code of the next recording of a graph. */
  capture: number;
}

/** Calls that make something, and what they make. */
const makers = {
  cuStreamCreate: 'stream',
  cuEventCreate: 'event',
  cuModuleLoadData: 'module',
  cuStreamEndCapture: 'graph',
  cuGraphInstantiateWithFlags: 'executable',
  cuCtxCreate_v2: 'context',
} as const;
const enders = {
  cuStreamDestroy_v2: 'stream',
  cuEventDestroy_v2: 'event',
  cuModuleUnload: 'module',
  cuGraphDestroy: 'graph',
  cuGraphExecDestroy: 'executable',
} as const;

/**
 * The driver's calls with counters in the place of a GPU: memory has limits, handles are counted, nothing is computed. What
 * cuda.h says of a context holds here, too: destroying it frees its memory and modules.
 */
export class FakeDriver {
  readonly faults: Faults = {
    deviceBytes: 1 << 20,
    pinnedBytes: 1 << 30,
    refused: null,
    fatal: null,
    capture: 0,
  };
  readonly library: DriverLibrary;
  readonly launched: string[] = [];
  /** Calls of cuMemcpyAsync. */
  copied = 0;
  readonly #live = new Map<bigint, string>();
  readonly #device = new Map<bigint, number>();
  readonly #pinned = new Map<bigint, Uint8Array>();
  readonly #kernels = new Map<bigint, string>();
  readonly #texts = new Map<string, Buffer>();
  #next = 0x1000n;
  #poisoned = 0;
  #capturing = false;

  constructor() {
    this.library = Object.fromEntries(
      Object.keys(driverFunctions).map((name) => [
        name,
        (...values: readonly unknown[]) => this.#call(name, values),
      ]),
    ) as unknown as DriverLibrary;
  }

  /** Handles and bytes that are held now, by kind; empty where nothing is. */
  get live(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const kind of this.#live.values()) counts[kind] = (counts[kind] ?? 0) + 1;
    for (const [kind, map] of [
      ['device buffers', this.#device],
      ['pinned buffers', this.#pinned],
    ] as const)
      if (map.size > 0) counts[kind] = map.size;
    return counts;
  }

  get capturing(): boolean {
    return this.#capturing;
  }

  #call(name: string, values: readonly unknown[]): number {
    const room = values[0] as BigUint64Array;
    const handle = () => BigInt(values[0] as bigint | number);
    if (name === 'cuGetErrorName' || name === 'cuGetErrorString') return this.#text(name, values);
    if (name === 'cuCtxDestroy_v2') {
      this.#device.clear();
      for (const [key, kind] of this.#live) if (kind === 'module') this.#live.delete(key);
      return this.#live.delete(handle()) ? 0 : 201;
    }
    if (name in enders) return this.#live.delete(handle()) ? 0 : 400;
    if (name === 'cuMemFreeHost' || name === 'cuMemHostUnregister')
      return this.#pinned.delete(handle()) ? 0 : 1;
    if (this.#poisoned !== 0 && name !== 'cuCtxSetCurrent') return this.#poisoned;
    switch (name) {
      case 'cuMemAlloc_v2':
        return this.#allocate(room, values[1] as number);
      case 'cuMemFree_v2':
        return this.#device.delete(handle()) ? 0 : 1;
      case 'cuMemHostAlloc':
        return this.#pin(room, values[1] as number);
      case 'cuMemHostRegister_v2':
        return this.#pin(null, values[1] as number, handle());
      case 'cuMemHostGetDevicePointer_v2':
        room[0] = values[1] as bigint;
        return 0;
      case 'cuMemGetInfo_v2':
        room[0] = BigInt(this.faults.deviceBytes - this.#heldBytes());
        (values[1] as BigUint64Array)[0] = BigInt(this.faults.deviceBytes);
        return 0;
      case 'cuModuleGetFunction':
        room[0] = this.#handle();
        this.#kernels.set(room[0], values[2] as string);
        return 0;
      case 'cuMemcpyAsync':
        this.copied += 1;
        return 0;
      case 'cuLaunchKernelEx':
        return this.#launch(this.#kernels.get(values[1] as bigint)!);
      case 'cuStreamBeginCapture_v2':
        this.#capturing = true;
        return 0;
      case 'cuStreamEndCapture':
        this.#capturing = false;
        if (this.faults.capture !== 0) return this.faults.capture;
        (values[1] as BigUint64Array)[0] = this.#make('graph');
        return 0;
    }
    const made = makers[name as keyof typeof makers];
    if (made !== undefined) room[0] = this.#make(made);
    return 0;
  }

  #handle(): bigint {
    this.#next += 0x100n;
    return this.#next;
  }

  #make(kind: string): bigint {
    const handle = this.#handle();
    this.#live.set(handle, kind);
    return handle;
  }

  #heldBytes(): number {
    return [...this.#device.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  #allocate(room: BigUint64Array, byteLength: number): number {
    if (this.#heldBytes() + byteLength > this.faults.deviceBytes) return 2;
    room[0] = this.#handle();
    this.#device.set(room[0], byteLength);
    return 0;
  }

  /** Pins memory of its own, whose address goes to `room`, or what lies at `given`. */
  #pin(room: BigUint64Array | null, byteLength: number, given = 0n): number {
    const held = [...this.#pinned.values()].reduce((sum, bytes) => sum + bytes.byteLength, 0);
    if (held + byteLength > this.faults.pinnedBytes) return 2;
    const bytes = new Uint8Array(room === null ? 0 : byteLength);
    if (room === null) {
      this.#pinned.set(given, bytes);
      return 0;
    }
    room[0] = addressOf(bytes);
    this.#pinned.set(room[0], bytes);
    return 0;
  }

  #launch(kernel: string): number {
    const { refused, fatal } = this.faults;
    if (refused?.kernel === kernel) return refused.code;
    this.launched.push(kernel);
    if (fatal?.kernel === kernel) this.#poisoned = fatal.code;
    return 0;
  }

  #text(name: string, [code, room]: readonly unknown[]): number {
    const text = name === 'cuGetErrorName' ? `CUDA_ERROR_${String(code)}` : `text of error ${String(code)}`;
    const bytes = this.#texts.get(text) ?? Buffer.from(`${text}\0`);
    this.#texts.set(text, bytes);
    (room as BigUint64Array)[0] = addressOf(bytes);
    return 0;
  }
}

/** A backend over a fake driver, opened as `openCuda` opens one. */
export function openFake(fake: FakeDriver, graphs = false): CudaBackend {
  const { library } = fake;
  const context = new BigUint64Array(1);
  library.cuCtxCreate_v2(context, 0, 0);
  const modules = new KernelModules(library, 232_448);
  const images = readKernelUnits().map(({ name }) => ({ name, image: new Uint8Array(4) }));
  modules.load({ images, sourceDigest: '', compiler: 'none', compiled: 0 });
  const parts: CudaParts = {
    driver: library,
    device: {
      index: 0,
      name: 'fake',
      architecture: 90,
      multiprocessors: 132,
      sharedBytes: 232_448,
      totalBytes: fake.faults.deviceBytes,
      pciBusId: '0',
    },
    context: context[0]!,
    modules,
    info: {
      name: 'cuda',
      kernels: 'fake',
      reason: 'a test',
      numerics: 'portable',
      threads: 1,
      kernelDigest: null,
    },
    graphs,
    overlap: false,
    canOverlap: false,
    contextBytes: null,
  };
  return new CudaBackend(parts);
}
