import { SetupError } from '../../base/errors.js';
import type { TransposedReader } from '../../checkpoint/transpose.js';
import type { BackendInfo } from '../backend.js';
import { CudaBackend } from './cuda-backend.js';
import { chooseDevice, type DeviceFacts, deviceHandle } from './device.js';
import { check, cudaCodes, type DriverLibrary, describe, driverVersion, loadDriver } from './driver.js';
import { type KernelImages, KernelModules, kernelImages } from './kernels.js';
import { measureContext } from './monitor.js';
import { oldestNativeArchitecture } from './plan-native.js';
import { nativeRoomBytes } from './plan-native-stages.js';

export interface CudaOptions {
  /** Among the GPUs that the driver shows (CUDA_VISIBLE_DEVICES), from 0. */
  readonly device?: number;
  /** `native`: prompt positions on tensor cores; default `portable`. */
  readonly numerics?: BackendInfo['numerics'];
  /** Replay programs that come again as graphs; default true. */
  readonly graphs?: boolean;
  /**
   * Let kernels that can (`Launch.overlapsPrevious`) start before the one in front has ended, and ask for their weights
   * then, where device and driver can.
   * Default true.
   */
  readonly overlap?: boolean;
  /** Told before kernels are compiled, which takes a while and is done once. */
  readonly onNote?: ((text: string) => void) | undefined;
  /** Turns matrices while it reads them; without it their mirrors are turned in TypeScript. */
  readonly readTransposed?: TransposedReader | undefined;
}

/** Drivers from CUDA 12.3 on record the overlap of kernels into graphs. */
const oldestOverlapVersion = 12030;

/**
 * Opens a GPU: driver, kernels (compiled or from the cache), a context of its own. Throws `SetupError` `no-cuda-driver`,
 * `cuda-driver-too-old`, `no-gpu`, `gpu-too-old`, `no-cuda-compiler`, `out-of-memory`; `UsageError` `no-such-device`.
 */
export async function openCuda(options: CudaOptions = {}): Promise<CudaBackend> {
  const driver = loadDriver();
  const device = chooseDevice(driver, options.device ?? 0);
  const numerics = options.numerics ?? 'portable';
  if (numerics === 'native') requireTensorCores(device);
  const kernels = await kernelImages(device.architecture, numerics, options.onNote);
  const {
    value,
    bytes: contextBytes,
    baselineBytes,
  } = measureContext(device.pciBusId, () => makeContext(driver, device, kernels, numerics));
  const { context, modules, nativeRoom } = value;
  try {
    return new CudaBackend({
      driver,
      device,
      context,
      modules,
      nativeRoom,
      readTransposed: options.readTransposed,
      contextBytes,
      baselineBytes,
      graphs: options.graphs ?? true,
      overlap: options.overlap ?? true,
      canOverlap: device.architecture >= 90 && driverVersion(driver) >= oldestOverlapVersion,
      info: {
        name: 'cuda',
        kernels: `cuda sm_${device.architecture}`,
        reason: `${device.name}, ${kernels.compiler}, ${kernels.compiled === 0 ? 'kernels from the cache' : 'kernels compiled now'}`,
        numerics,
        threads: 1,
        kernelDigest: kernels.sourceDigest,
      },
    });
  } catch (error) {
    driver.cuCtxDestroy_v2(context);
    throw error;
  }
}

function requireTensorCores({ name, architecture }: DeviceFacts): void {
  if (architecture >= oldestNativeArchitecture) return;
  throw new SetupError(
    'gpu-too-old',
    `Cannot compute in native numerics on "${name}": its compute capability is ${architecture / 10}, ${oldestNativeArchitecture / 10} or later is wanted; use --numerics portable`,
  );
}

/** CU_LIMIT_STACK_SIZE of cuda.h. */
const stackSizeLimit = 0;

function makeContext(
  driver: DriverLibrary,
  device: DeviceFacts,
  kernels: KernelImages,
  numerics: BackendInfo['numerics'],
): {
  readonly context: bigint;
  readonly modules: KernelModules;
  readonly nativeRoom: number | null;
} {
  const room = new BigUint64Array(1);
  const code = driver.cuCtxCreate_v2(room, 0, deviceHandle(driver, device.index));
  if (code === cudaCodes.outOfMemory) {
    throw new SetupError(
      'out-of-memory',
      `Cannot open "${device.name}": its memory does not hold another context, ${describe(driver, 'cuCtxCreate', code)}`,
    );
  }
  check(driver, 'cuCtxCreate', code, `open "${device.name}"`);
  const context = room[0]!;
  try {
    // A context keeps the stack limit, 1 KiB unless told, for every thread that the device can run: a quarter of a gigabyte on
    // an H200. No kernel calls through pointers or itself, so the driver knows what each one needs.
    check(driver, 'cuCtxSetLimit', driver.cuCtxSetLimit(stackSizeLimit, 0), 'give back room for stacks');
    const modules = new KernelModules(driver, device.sharedBytes);
    modules.load(kernels);
    const roomFor = (what: string, byteLength: number): number => {
      const address = new BigUint64Array(1);
      check(driver, 'cuMemAlloc', driver.cuMemAlloc_v2(address, byteLength), `make room for ${what}`);
      return Number(address[0]!);
    };
    return {
      context,
      modules,
      nativeRoom: numerics === 'native' ? roomFor('rounded activations', nativeRoomBytes) : null,
    };
  } catch (error) {
    driver.cuCtxDestroy_v2(context);
    throw error;
  }
}
