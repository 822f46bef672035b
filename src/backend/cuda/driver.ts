import { ExecutionError, SetupError } from '../../base/errors.js';
import { driverFunctions, type ForeignLibrary, foreignText, loadForeign } from './foreign.js';

export type DriverLibrary = ForeignLibrary<typeof driverFunctions>;

/** Codes of cuda.h that are told apart. */
export const cudaCodes = { success: 0, outOfMemory: 2, noDevice: 100, notReady: 600 } as const;

/**
 * Codes of cuda.h behind which a context answers every call with the same one: a kernel has failed some time before
 * (illegal address, timeout, assertion, stack, instruction, alignment, address space, program counter, launch, contained).
 */
const fatalCodes: ReadonlySet<unknown> = new Set([700, 702, 710, 714, 715, 716, 717, 718, 719, 721]);

export function isFatal(code: unknown): code is number {
  return fatalCodes.has(code);
}

/** Oldest driver interface that has every function used here (cuLaunchKernelEx: CUDA 11.8). */
const oldestVersion = 11080;

const driverName = 'libcuda.so.1';
const loaded = new Map<string, DriverLibrary>();

/**
 * Loads the driver library once and initializes it. Throws `SetupError` `no-cuda-driver`, `cuda-driver-too-old`, `no-gpu`
 * or `cuda-driver-failed`.
 */
export function loadDriver(path = driverName): DriverLibrary {
  const known = loaded.get(path);
  if (known !== undefined) return known;
  let library: DriverLibrary;
  try {
    library = loadForeign(path, driverFunctions);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const missing = /cannot open shared object|not found|failed to load/i.test(reason);
    throw new SetupError(
      missing ? 'no-cuda-driver' : 'cuda-driver-too-old',
      missing
        ? 'Cannot open CUDA: the NVIDIA driver library "libcuda.so.1" is not on the loader path, install the NVIDIA driver'
        : `Cannot open CUDA: the driver library lacks a function, install a driver for CUDA 11.8 or later (${reason})`,
      {},
      { cause: error },
    );
  }
  const code = library.cuInit(0);
  if (code === cudaCodes.noDevice) {
    throw new SetupError('no-gpu', 'Cannot open CUDA: the driver finds no GPU (see CUDA_VISIBLE_DEVICES)');
  }
  if (code !== cudaCodes.success) {
    throw new SetupError('cuda-driver-failed', `Cannot open CUDA: ${describe(library, 'cuInit', code)}`);
  }
  const version = driverVersion(library);
  if (version < oldestVersion) {
    throw new SetupError(
      'cuda-driver-too-old',
      `Cannot open CUDA: the driver serves CUDA ${versionText(version)}, install one for CUDA 11.8 or later`,
    );
  }
  loaded.set(path, library);
  return library;
}

/** Newest CUDA that the driver serves: 13000 for 13.0. */
export function driverVersion(library: DriverLibrary): number {
  const version = new Int32Array(1);
  check(library, 'cuDriverGetVersion', library.cuDriverGetVersion(version));
  return version[0]!;
}

/** 13000 is "13.0". */
export function versionText(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

/** Throws `ExecutionError` `cuda-failed` that names the call, the code and its text. `doing` ends "Cannot …". */
export function check(library: DriverLibrary, call: string, code: number, doing = 'use the GPU'): void {
  if (code === cudaCodes.success) return;
  throw new ExecutionError('cuda-failed', `Cannot ${doing}: ${describe(library, call, code)}`, {
    call,
    cudaCode: code,
  });
}

/** `cuMemAlloc failed with 2, CUDA_ERROR_OUT_OF_MEMORY: out of memory` */
export function describe(library: DriverLibrary, call: string, code: number): string {
  const text = (get: 'cuGetErrorName' | 'cuGetErrorString'): string => {
    const room = new BigUint64Array(1);
    return library[get](code, room) === 0 ? foreignText(room[0]!) : 'unknown error';
  };
  return `${call} failed with ${code}, ${text('cuGetErrorName')}: ${text('cuGetErrorString')}`;
}
