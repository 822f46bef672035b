/**
 * The part of the WebAssembly JavaScript interface that the kernels need. TypeScript declares it for browsers only,
 * and a global declaration of our own would meet theirs in a user's program.
 */

/** A compiled module; threads share it without compiling again. */
export interface WasmCode {
  readonly [Symbol.toStringTag]: string;
}

/** A shared linear memory. Growing it gives a new, longer `buffer`; older ones go on showing the same bytes. */
export interface SharedMemory {
  readonly buffer: SharedArrayBuffer;
  grow(pages: number): number;
}

interface WasmInterface {
  compile(bytes: Uint8Array): Promise<WasmCode>;
  readonly Memory: new (limits: { initial: number; maximum: number; shared: true }) => SharedMemory;
  readonly Instance: new (
    code: WasmCode,
    imports: { env: { memory: SharedMemory } },
  ) => { readonly exports: object };
}

export const wasm: WasmInterface = (globalThis as unknown as { WebAssembly: WasmInterface }).WebAssembly;
