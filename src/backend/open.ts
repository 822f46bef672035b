import { UsageError } from '../base/errors.js';
import type { Backend } from './backend.js';

export const backendNames = ['cpu', 'cuda', 'oracle', 'auto'] as const;
export type BackendName = (typeof backendNames)[number];

export const numericsModes = ['portable', 'native'] as const;
export type NumericsMode = (typeof numericsModes)[number];

export const kernelChoices = ['auto', 'native', 'wasm'] as const;
export type KernelChoice = (typeof kernelChoices)[number];

/** What a backend is opened with. */
export interface BackendOptions {
  readonly name: Exclude<BackendName, 'auto'>;
  readonly threads: number;
  /** Which kernels of the CPU backend: native where they load, else WebAssembly; or one of them by name. */
  readonly kernels: KernelChoice;
  /** Which GPU, from 0, where one is used. */
  readonly device?: number;
  /** `native` is for a GPU; default `portable`. */
  readonly numerics?: NumericsMode;
  /** Told what opening waits for. */
  readonly onNote?: ((text: string) => void) | undefined;
}

/**
 * Opens a backend; each is loaded only when asked for. Adding one is its folder and a line here. Throws `UsageError`
 * `native-needs-gpu` where native numerics would meet a CPU.
 */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  if (options.numerics === 'native' && (options.name === 'cpu' || options.name === 'oracle')) {
    throw new UsageError(
      'native-needs-gpu',
      `Cannot compute in native numerics with backend "${options.name}": only "cuda" has them, want --numerics portable or --backend cuda`,
      { backend: options.name },
    );
  }
  switch (options.name) {
    case 'cpu':
      return (await import('./cpu/open-cpu.js')).openCpu(options);
    case 'cuda':
      return (await import('./cuda/open-cuda.js')).openCuda({
        ...options,
        readTransposed: (await import('./cpu/native-transpose.js')).nativeTransposer(),
      });
    case 'oracle':
      return (await import('./oracle/open-oracle.js')).openOracle();
  }
}

/**
 * Whether the machine has a GPU at all, before the rest of the backend is loaded for it: some milliseconds where there is no
 * driver. Throws `SetupError` `no-cuda-driver`, `no-gpu`, `cuda-driver-too-old` or `cuda-driver-failed`.
 */
export async function requireGpu(): Promise<void> {
  (await import('./cuda/driver.js')).loadDriver();
}
