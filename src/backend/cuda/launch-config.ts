import { addressOf } from './foreign.js';

/**
 * What cuda.h calls CUlaunchConfig and CUlaunchAttribute, in bytes; test/backend/cuda-signatures.test.ts compares these
 * figures with the header where it is present.
 */
export const launchConfigLayout = {
  gridDimX: 0,
  gridDimY: 4,
  gridDimZ: 8,
  blockDimX: 12,
  blockDimY: 16,
  blockDimZ: 20,
  sharedMemBytes: 24,
  hStream: 32,
  attrs: 40,
  numAttrs: 48,
} as const;
export const launchAttributeLayout = { value: 8, byteLength: 72 } as const;
export const launchAttributeIds = {
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: 6,
} as const;

const configBytes = 64;
const mostAttributes = 2;

/** One launch configuration off the JavaScript heap, written again for each launch. */
export class LaunchConfig {
  readonly view = new DataView(
    new ArrayBuffer(configBytes + mostAttributes * launchAttributeLayout.byteLength),
  );
  #attributes = 0;

  constructor(stream: bigint) {
    this.view.setBigUint64(launchConfigLayout.hStream, stream, true);
    this.view.setBigUint64(launchConfigLayout.attrs, addressOf(this.view) + BigInt(configBytes), true);
  }

  /** Begins a configuration without attributes. */
  begin(grid: readonly [number, number, number], threads: number, sharedBytes: number): void {
    const at = launchConfigLayout;
    this.#attributes = 0;
    this.view.setUint32(at.gridDimX, grid[0], true);
    this.view.setUint32(at.gridDimY, grid[1], true);
    this.view.setUint32(at.gridDimZ, grid[2], true);
    this.view.setUint32(at.blockDimX, threads, true);
    this.view.setUint32(at.blockDimY, 1, true);
    this.view.setUint32(at.blockDimZ, 1, true);
    this.view.setUint32(at.sharedMemBytes, sharedBytes, true);
    this.view.setUint32(at.numAttrs, 0, true);
  }

  attribute(name: keyof typeof launchAttributeIds, ...words: readonly number[]): void {
    const place = configBytes + this.#attributes * launchAttributeLayout.byteLength;
    this.view.setUint32(place, launchAttributeIds[name], true);
    words.forEach((word, index) => {
      this.view.setUint32(place + launchAttributeLayout.value + index * 4, word, true);
    });
    this.#attributes += 1;
    this.view.setUint32(launchConfigLayout.numAttrs, this.#attributes, true);
  }
}
