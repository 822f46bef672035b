import { readFile } from 'node:fs/promises';
import { builtModule } from '../../base/built-module.js';
import { sha256Hex } from '../../base/digest.js';
import { type WasmCode, wasm } from './wasm-api.js';

/** The compiled kernels with the SHA-256 of their bytes. */
export interface WasmModule {
  readonly module: WasmCode;
  readonly digest: string;
}

let loading: Promise<WasmModule> | null = null;

/** Compiles the kernels once a process. Throws `SetupError` `not-built` where dist/ lacks them. */
export function loadWasmModule(): Promise<WasmModule> {
  loading ??= load();
  // What is absent now may be built later.
  loading.catch(() => {
    loading = null;
  });
  return loading;
}

async function load(): Promise<WasmModule> {
  const bytes = await readFile(builtModule('backend/cpu/kernels.wasm'));
  return { module: await wasm.compile(bytes), digest: sha256Hex(bytes) };
}
