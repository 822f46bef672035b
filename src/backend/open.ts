import type { Backend } from './backend.js';

export const backendNames = ['cpu', 'cuda', 'oracle'] as const;
export type BackendName = (typeof backendNames)[number];

export const kernelChoices = ['auto', 'native', 'wasm'] as const;
export type KernelChoice = (typeof kernelChoices)[number];

/** What a backend is opened with. */
export interface BackendOptions {
  readonly name: BackendName;
  readonly threads: number;
  /** Which kernels of the CPU backend: native where they load, else WebAssembly; or one of them by name. */
  readonly kernels: KernelChoice;
}

/** Opens a backend; each is loaded only when asked for. Adding one is its folder and a line here. */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  switch (options.name) {
    case 'cpu':
      return (await import('./cpu/open-cpu.js')).openCpu(options);
    case 'cuda':
      return (await import('./cuda/open-cuda.js')).openCuda();
    case 'oracle':
      return (await import('./oracle/open-oracle.js')).openOracle();
  }
}
