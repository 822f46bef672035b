import { ExecutionError } from '../../base/errors.js';
import { check, type DriverLibrary, describe } from './driver.js';
import { addressOf } from './foreign.js';
import type { KernelModules } from './kernels.js';
import type { Launch } from './launch.js';
import { encodeParameters } from './parameters.js';

// CUlaunchConfig of cuda.h: grid and block (3 + 3 words), shared bytes, stream at 32, attributes at 40, their count at 48.
const streamOffset = 32;
const attributesOffset = 64;
const attributeListOffset = 40;
const attributeCountOffset = 48;
// CUlaunchAttribute: its number, then at 8 a value of 64 bytes.
const attributeBytes = 72;
const clusterDimension = 4;
const programmaticSerialization = 6;
const parameterBytes = 512;

/** Enqueues launches on a stream, one foreign call each, without allocating. */
export class Launcher {
  readonly #driver: DriverLibrary;
  readonly #modules: KernelModules;
  readonly #stream: bigint;
  // Buffers of their own, off the JavaScript heap: foreign structures hold their addresses.
  readonly #config = new DataView(new ArrayBuffer(attributesOffset + 2 * attributeBytes));
  readonly #parameters = new DataView(new ArrayBuffer(parameterBytes));
  readonly #parameterList = new BigUint64Array(new ArrayBuffer(128));

  readonly #overlaps: boolean;

  /** `overlaps`: kernels may start before the one in front has ended; they wait for it themselves. */
  constructor(driver: DriverLibrary, modules: KernelModules, stream: bigint, overlaps: boolean) {
    this.#driver = driver;
    this.#modules = modules;
    this.#stream = stream;
    this.#overlaps = overlaps;
    this.#config.setBigUint64(streamOffset, stream, true);
    this.#config.setBigUint64(attributeListOffset, addressOf(this.#config) + BigInt(attributesOffset), true);
    this.#parameterList[0] = addressOf(this.#parameters);
  }

  run(launches: readonly Launch[]): void {
    for (const one of launches) this.#launch(one);
  }

  #launch({ kernel, grid, threads, sharedBytes, cluster, structure, values }: Launch): void {
    const config = this.#config;
    config.setUint32(0, grid[0], true);
    config.setUint32(4, grid[1], true);
    config.setUint32(8, grid[2], true);
    config.setUint32(12, threads, true);
    config.setUint32(16, 1, true);
    config.setUint32(20, 1, true);
    config.setUint32(24, sharedBytes, true);
    let attributes = 0;
    const attribute = (number: number): number => {
      const place = attributesOffset + attributes * attributeBytes;
      config.setUint32(place, number, true);
      attributes += 1;
      return place + 8;
    };
    if (this.#overlaps) config.setUint32(attribute(programmaticSerialization), 1, true);
    if (cluster > 1) {
      const place = attribute(clusterDimension);
      config.setUint32(place, cluster, true);
      config.setUint32(place + 4, 1, true);
      config.setUint32(place + 8, 1, true);
    }
    config.setUint32(attributeCountOffset, attributes, true);
    encodeParameters(structure, values, this.#parameters);
    const code = this.#driver.cuLaunchKernelEx(config, this.#modules.find(kernel), this.#parameterList, null);
    if (code !== 0) {
      throw new ExecutionError(
        'kernel-failed',
        `Cannot launch "${kernel}" on ${grid.join(' x ')} blocks of ${threads} threads: ${describe(this.#driver, 'cuLaunchKernelEx', code)}`,
        { kernel, cudaCode: code },
      );
    }
  }

  /** Records launches into a graph instead of running them; returns what replays them. */
  capture(launches: readonly Launch[]): bigint {
    const driver = this.#driver;
    const threadLocal = 1;
    check(driver, 'cuStreamBeginCapture', driver.cuStreamBeginCapture_v2(this.#stream, threadLocal));
    const graph = new BigUint64Array(1);
    let failure: unknown = null;
    try {
      this.run(launches);
    } catch (error) {
      failure = error;
    }
    const ended = driver.cuStreamEndCapture(this.#stream, graph);
    if (failure !== null) throw failure;
    check(driver, 'cuStreamEndCapture', ended);
    const executable = new BigUint64Array(1);
    const code = driver.cuGraphInstantiateWithFlags(executable, graph[0]!, 0);
    driver.cuGraphDestroy(graph[0]!);
    check(driver, 'cuGraphInstantiate', code, `make a graph of ${launches.length} kernels`);
    return executable[0]!;
  }
}
