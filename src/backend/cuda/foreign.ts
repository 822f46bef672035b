import { constants } from 'node:buffer';
import koffi, { type KoffiFunc } from 'koffi';

/**
 * Every foreign signature of the CUDA backend, by library; test/backend/cuda-signatures.test.ts compares them with cuda.h
 * where it is present. A wrong one would crash the process, so no other file here calls koffi. All functions return a
 * status (int).
 *
 * `room`: a pointer to host memory, given as a typed array or null. `handle`: a pointer or device address, given as
 * BigInt or number and passed as 64 bits. `texts`: an array of C strings. The rest are C types.
 */
export type ForeignType =
  | 'room'
  | 'handle'
  | 'text'
  | 'texts'
  | 'int'
  | 'uint'
  | 'size'
  | 'u64'
  | 'float'
  | 'uchar';

/** libcuda.so.1. Names carry the version suffix that cuda.h defines them to. */
export const driverFunctions = {
  cuInit: ['uint'],
  cuDriverGetVersion: ['room'],
  cuDeviceGetCount: ['room'],
  cuDeviceGet: ['room', 'int'],
  cuDeviceGetName: ['room', 'int', 'int'],
  cuDeviceGetAttribute: ['room', 'int', 'int'],
  cuDeviceGetPCIBusId: ['room', 'int', 'int'],
  cuDeviceTotalMem_v2: ['room', 'int'],
  cuCtxCreate_v2: ['room', 'uint', 'int'],
  cuCtxDestroy_v2: ['handle'],
  cuCtxSetCurrent: ['handle'],
  cuCtxSetLimit: ['int', 'size'],
  cuCtxSynchronize: [],
  cuMemGetInfo_v2: ['room', 'room'],
  cuMemAlloc_v2: ['room', 'size'],
  cuMemFree_v2: ['handle'],
  cuMemHostAlloc: ['room', 'size', 'uint'],
  cuMemFreeHost: ['handle'],
  cuMemHostRegister_v2: ['handle', 'size', 'uint'],
  cuMemHostUnregister: ['handle'],
  cuMemHostGetDevicePointer_v2: ['room', 'handle', 'uint'],
  cuMemsetD8Async: ['handle', 'uchar', 'size', 'handle'],
  cuMemcpyHtoDAsync_v2: ['handle', 'room', 'size', 'handle'],
  cuMemcpyDtoHAsync_v2: ['handle', 'handle', 'size', 'handle'],
  cuMemcpyAsync: ['handle', 'handle', 'size', 'handle'],
  cuMemcpy2DAsync_v2: ['room', 'handle'],
  cuStreamCreate: ['room', 'uint'],
  cuStreamDestroy_v2: ['handle'],
  cuStreamSynchronize: ['handle'],
  cuStreamWaitEvent: ['handle', 'handle', 'uint'],
  cuStreamBeginCapture_v2: ['handle', 'int'],
  cuStreamEndCapture: ['handle', 'room'],
  cuEventCreate: ['room', 'uint'],
  cuEventDestroy_v2: ['handle'],
  cuEventRecord: ['handle', 'handle'],
  cuEventRecordWithFlags: ['handle', 'handle', 'uint'],
  cuEventQuery: ['handle'],
  cuEventElapsedTime: ['room', 'handle', 'handle'],
  cuGraphInstantiateWithFlags: ['room', 'handle', 'u64'],
  cuGraphLaunch: ['handle', 'handle'],
  cuGraphExecDestroy: ['handle'],
  cuGraphDestroy: ['handle'],
  cuModuleLoadData: ['room', 'room'],
  cuModuleUnload: ['handle'],
  cuModuleGetFunction: ['room', 'handle', 'text'],
  cuFuncSetAttribute: ['handle', 'int', 'int'],
  cuFuncGetAttribute: ['room', 'int', 'handle'],
  cuLaunchKernelEx: ['room', 'handle', 'room', 'room'],
  cuGetErrorName: ['int', 'room'],
  cuGetErrorString: ['int', 'room'],
} as const satisfies Record<string, readonly ForeignType[]>;

/** libnvrtc.so. */
export const compilerFunctions = {
  nvrtcVersion: ['room', 'room'],
  nvrtcGetNumSupportedArchs: ['room'],
  nvrtcGetSupportedArchs: ['room'],
  nvrtcCreateProgram: ['room', 'text', 'text', 'int', 'room', 'room'],
  nvrtcCompileProgram: ['handle', 'int', 'texts'],
  nvrtcGetProgramLogSize: ['handle', 'room'],
  nvrtcGetProgramLog: ['handle', 'room'],
  nvrtcGetCUBINSize: ['handle', 'room'],
  nvrtcGetCUBIN: ['handle', 'room'],
  nvrtcGetPTXSize: ['handle', 'room'],
  nvrtcGetPTX: ['handle', 'room'],
  nvrtcDestroyProgram: ['room'],
} as const satisfies Record<string, readonly ForeignType[]>;

/** libnvidia-ml.so.1. */
export const monitorFunctions = {
  nvmlInit_v2: [],
  nvmlShutdown: [],
  nvmlDeviceGetHandleByPciBusId_v2: ['text', 'room'],
  nvmlDeviceGetMemoryInfo_v2: ['handle', 'room'],
  nvmlDeviceGetComputeRunningProcesses_v3: ['handle', 'room', 'room'],
  nvmlDeviceGetClockInfo: ['handle', 'int', 'room'],
  nvmlDeviceGetUUID: ['handle', 'room', 'uint'],
  nvmlDeviceGetTemperature: ['handle', 'int', 'room'],
  nvmlDeviceGetCurrentClocksThrottleReasons: ['handle', 'room'],
  nvmlDeviceGetPowerUsage: ['handle', 'room'],
  nvmlDeviceGetEnforcedPowerLimit: ['handle', 'room'],
  nvmlDeviceGetCurrPcieLinkGeneration: ['handle', 'room'],
  nvmlDeviceGetCurrPcieLinkWidth: ['handle', 'room'],
  nvmlDeviceGetMaxPcieLinkGeneration: ['handle', 'room'],
  nvmlDeviceGetMaxPcieLinkWidth: ['handle', 'room'],
} as const satisfies Record<string, readonly ForeignType[]>;

const foreignTypes: Record<ForeignType, string> = {
  room: 'void *',
  handle: 'uint64_t',
  text: 'const char *',
  texts: 'const char **',
  int: 'int',
  uint: 'unsigned int',
  size: 'size_t',
  u64: 'uint64_t',
  float: 'float',
  uchar: 'unsigned char',
};

/** What a foreign function takes, by its declared types. */
type Argument<Type extends ForeignType> = Type extends 'room'
  ? ArrayBufferView | null
  : Type extends 'text'
    ? string
    : Type extends 'texts'
      ? readonly string[]
      : Type extends 'handle' | 'u64'
        ? bigint | number
        : number;
type Arguments<Types extends readonly ForeignType[]> = { -readonly [I in keyof Types]: Argument<Types[I]> };

export type ForeignLibrary<Table extends Record<string, readonly ForeignType[]>> = {
  readonly [Name in keyof Table]: (...values: Arguments<Table[Name]>) => number;
};

/** Loads a library by name or path; throws what koffi throws where it, or one of its functions, is absent. */
export function loadForeign<const Table extends Record<string, readonly ForeignType[]>>(
  path: string,
  table: Table,
): ForeignLibrary<Table> {
  const library = koffi.load(path);
  return Object.fromEntries(
    Object.entries(table).map(([name, types]) => [
      name,
      library.func(
        name,
        'int',
        types.map((type) => foreignTypes[type]),
      ),
    ]),
  ) as unknown as ForeignLibrary<Table>;
}

/** Runs a call on a thread of libuv's pool; what it points to stays reachable until it is over. */
export function callAside<Values extends readonly unknown[]>(
  call: (...values: Values) => number,
  ...values: Values
): Promise<number> {
  return new Promise((resolve, reject) => {
    (call as unknown as KoffiFunc<(...values: unknown[]) => number>).async(
      ...values,
      (error: unknown, status: unknown) => {
        if (error === null || error === undefined) resolve(Number(status));
        else reject(error);
        return values.length;
      },
    );
  });
}

/** Anonymous pages of the system, zeroed at their first use. */
export interface HostPages {
  readonly address: bigint;
  readonly bytes: Uint8Array;
  /** Nothing may read or write `bytes` any more. */
  release(): void;
}

/** Of mman.h on Linux. */
const [readWrite, privateAnonymous, hugePageAdvice] = [3, 0x22, 14] as const;
const hugePageBytes = 2 * 1024 * 1024;

/**
 * Pages from the system, in large ones where it has them: several threads may touch them for the first time at once, and few
 * large pages are soon pinned. Null where that is not Linux, or refused.
 */
export function hostPages(byteLength: number): HostPages | null {
  if (process.platform !== 'linux' || byteLength > mostForeignBytes) return null;
  pageCalls ??= loadPageCalls();
  if (pageCalls === null) return null;
  const { mmap, madvise, munmap } = pageCalls;
  const length = byteLength + hugePageBytes;
  const base = BigInt(mmap(0, length, readWrite, privateAnonymous, -1, 0));
  if (base === 0xffff_ffff_ffff_ffffn) return null;
  const step = BigInt(hugePageBytes);
  const address = ((base + step - 1n) / step) * step;
  madvise(address, byteLength, hugePageAdvice);
  return { address, bytes: foreignBytes(address, byteLength), release: () => void munmap(base, length) };
}

type PageCall = (...values: (bigint | number)[]) => bigint | number;
let pageCalls:
  | { readonly mmap: PageCall; readonly madvise: PageCall; readonly munmap: PageCall }
  | null
  | undefined;

function loadPageCalls() {
  try {
    const library = koffi.load('libc.so.6');
    return {
      mmap: library.func('mmap', 'uint64_t', [
        'uint64_t',
        'size_t',
        'int',
        'int',
        'int',
        'int64_t',
      ]) as PageCall,
      madvise: library.func('madvise', 'int', ['uint64_t', 'size_t', 'int']) as PageCall,
      munmap: library.func('munmap', 'int', ['uint64_t', 'size_t']) as PageCall,
    };
  } catch {
    return null; // another C library
  }
}

/** A view of more ends the process, in koffi; the system, too, promises pages that it does not have. */
export const mostForeignBytes = constants.MAX_LENGTH;

/** Host memory that foreign code owns, as bytes; valid until that code frees it. At most `mostForeignBytes`. */
export function foreignBytes(address: bigint, byteLength: number): Uint8Array {
  if (byteLength > mostForeignBytes) {
    throw new RangeError(
      `Cannot view ${byteLength} bytes of host memory: at most ${mostForeignBytes} are one array`,
    );
  }
  return new Uint8Array(koffi.view(address, byteLength));
}

/** A C string at an address. */
export function foreignText(address: bigint): string {
  return address === 0n ? '' : koffi.decode(address, 'char', -1);
}

/** Address of a typed array's bytes, for structures that point to it; the array must outlive their use. */
export function addressOf(array: ArrayBufferView): bigint {
  return koffi.address(array);
}
