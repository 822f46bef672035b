import { availableParallelism } from 'node:os';
import { SetupError } from '../../base/errors.js';
import type { Backend } from '../backend.js';
import type { WasmBackend } from './wasm-backend.js';

export interface CpuOptions {
  /** Compute threads; default: the processors that this process may use. */
  readonly threads?: number;
  /** `auto` (default): native kernels where they load, else WebAssembly. */
  readonly kernels?: 'auto' | 'native' | 'wasm';
}

/**
 * Opens the CPU backend; `info.reason` says why its kernels were chosen. Throws `SetupError` `native-unavailable` where
 * native kernels were asked for by name and cannot be had, and whatever opening the chosen kernels throws.
 */
export async function openCpu(options: CpuOptions = {}): Promise<Backend> {
  const { threads = availableParallelism(), kernels = 'auto' } = options;
  if (kernels === 'wasm') return openWasmKernels(threads, 'WebAssembly kernels were asked for');
  const reason = await whyNotNative();
  if (reason === null) return (await import('./native-backend.js')).openNative({ threads });
  if (kernels === 'native') {
    throw new SetupError('native-unavailable', `Cannot open native kernels: ${reason}`);
  }
  return openWasmKernels(threads, `native kernels: ${reason}`);
}

async function openWasmKernels(threads: number, reason: string): Promise<WasmBackend> {
  return (await import('./wasm-backend.js')).openWasm({ threads, reason });
}

/** Null where the native kernels load. The library that calls them is optional, so its absence is a reason too. */
async function whyNotNative(): Promise<string | null> {
  try {
    const status = (await import('./native-status.js')).nativeStatus();
    return status.available ? null : status.reason;
  } catch (error) {
    return `the library that calls them cannot be loaded: ${error instanceof Error ? error.message : String(error)}`;
  }
}
