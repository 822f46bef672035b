import koffi from 'koffi';

/**
 * Every foreign signature of Waybill's CPU kernels; native/api.h declares the same ones and says what they do. A
 * wrong signature here would crash the process, so no other file calls koffi. Addresses travel as numbers (they are
 * below 2^47, size_t on the other side), arrays as typed arrays whose bytes koffi passes in place.
 */
export interface NativeLibrary {
  instructionSets(): number;
  open(threads: number, instructionSet: number, readers: number): bigint | null;
  close(handle: bigint): void;
  submit(handle: bigint, program: Float64Array, ops: number): Promise<number>;
  allocate(byteLength: number): number;
  release(address: number, byteLength: number): void;
  copyIn(address: number, bytes: Uint8Array): void;
  copyOut(bytes: Uint8Array, address: number): void;
  transfer(handle: bigint, regions: Float64Array, count: number, failure: Float64Array): Promise<number>;
  prefetch(descriptor: number, regions: Float64Array, count: number): void;
  evict(descriptor: number): number;
  readTransposed(
    descriptor: number,
    words: Float64Array,
    target: Uint8Array,
    failure: Float64Array,
  ): Promise<number>;
  lowBitRows(
    instructionSet: number,
    words: Float64Array,
    weights: Uint8Array,
    directions: Int16Array | null,
    copy: Uint8Array,
  ): Promise<number>;
  sum(handle: bigint, address: number, count: number): Promise<number>;
}

/** Of native/api.h. */
export const interfaceVersion = 1;

/** Loads the library at `path`; throws what koffi throws, or an `Error` where the interface version differs. */
export function loadNativeLibrary(path: string): NativeLibrary {
  const library = koffi.load(path);
  const version = library.func('wb_interface_version', 'int', []);
  if (version() !== interfaceVersion) {
    throw new Error(`its interface is version ${String(version())}, version ${interfaceVersion} is wanted`);
  }
  const instructionSets = library.func('wb_instruction_sets', 'int', []);
  const open = library.func('wb_open', 'void *', ['int', 'int', 'int']);
  const close = library.func('wb_close', 'void', ['void *']);
  const submit = library.func('wb_submit', 'int64_t', ['void *', 'void *', 'size_t']);
  const allocate = library.func('wb_allocate', 'uintptr_t', ['size_t']);
  const release = library.func('wb_release', 'void', ['uintptr_t', 'size_t']);
  const copyIn = library.func('wb_copy', 'void', ['uintptr_t', 'void *', 'size_t']);
  const copyOut = library.func('wb_copy', 'void', ['void *', 'uintptr_t', 'size_t']);
  const transfer = library.func('wb_transfer', 'int', ['void *', 'void *', 'size_t', 'void *']);
  const prefetch = library.func('wb_prefetch', 'void', ['int', 'void *', 'size_t']);
  const readTransposed = library.func('wb_read_transposed', 'int', ['int', 'void *', 'void *', 'void *']);
  const evict = library.func('wb_evict', 'int', ['int']);
  const lowBitRows = library.func('wb_low_bit_rows', 'int', ['int', 'void *', 'void *', 'void *', 'void *']);
  const sum = library.func('wb_sum', 'double', ['void *', 'uintptr_t', 'size_t']);

  return {
    instructionSets: () => instructionSets(),
    open: (threads, instructionSet, readers) => open(threads, instructionSet, readers),
    close: (handle) => close(handle),
    // The closures of these calls hold their arrays until the call is over.
    submit: (handle, program, ops) => asynchronous(submit, [handle, program, ops]).then(Number),
    allocate: (byteLength) => Number(allocate(byteLength)),
    release: (address, byteLength) => release(address, byteLength),
    copyIn: (address, bytes) => copyIn(address, bytes, bytes.byteLength),
    copyOut: (bytes, address) => copyOut(bytes, address, bytes.byteLength),
    transfer: (handle, regions, count, failure) =>
      asynchronous(transfer, [handle, regions, count, failure]).then(Number),
    prefetch: (descriptor, regions, count) => prefetch(descriptor, regions, count),
    evict: (descriptor) => evict(descriptor),
    readTransposed: (descriptor, words, target, failure) =>
      asynchronous(readTransposed, [descriptor, words, target, failure]).then(Number),
    lowBitRows: (set, words, weights, directions, copy) =>
      asynchronous(lowBitRows, [set, words, weights, directions, copy]).then(Number),
    sum: (handle, address, count) => asynchronous(sum, [handle, address, count]).then(Number),
  };
}

type ForeignFunction = ReturnType<ReturnType<typeof koffi.load>['func']>;

/** Runs the call on a thread of libuv's pool, so that the event loop stays free. */
function asynchronous(call: ForeignFunction, operands: readonly unknown[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    call.async(...operands, (error: unknown, result: unknown) => {
      if (error === null || error === undefined) resolve(result);
      else reject(error);
      // Reading them here keeps the garbage collector away from memory that native threads work in.
      return operands.length;
    });
  });
}
