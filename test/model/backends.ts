import type { Backend } from '../../src/backend/backend.js';
import { openBackend } from '../../src/backend/open.js';
import { SetupError } from '../../src/base/errors.js';

export interface BackendChoice {
  readonly name: string;
  open(): Promise<Backend>;
}

export const oracleBackend: BackendChoice = {
  name: 'oracle',
  open: () => openBackend({ name: 'oracle', threads: 1, kernels: 'auto' }),
};

const cpu = (kernels: 'native' | 'wasm', threads: number): BackendChoice => ({
  name: `cpu ${kernels}, ${threads} threads`,
  open: () => openBackend({ name: 'cpu', threads, kernels }),
});

/** The CPU backends that open here; those that do not are named aloud. */
export async function openableCpuBackends(): Promise<BackendChoice[]> {
  const found: BackendChoice[] = [];
  for (const choice of [cpu('native', 1), cpu('native', 3), cpu('wasm', 1), cpu('wasm', 2)]) {
    try {
      await (await choice.open()).close();
      found.push(choice);
    } catch (error) {
      if (!(error instanceof SetupError)) throw error;
      console.warn(`Skipped "${choice.name}": ${error.message}`);
    }
  }
  return found;
}
