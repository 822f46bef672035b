import { ExecutionError } from '../../base/errors.js';
import { check, type DriverLibrary, describe } from './driver.js';
import { addressOf } from './foreign.js';
import type { KernelModules } from './kernels.js';
import type { Launch } from './launch.js';
import { LaunchConfig } from './launch-config.js';
import { encodeParameters } from './parameters.js';

const parameterBytes = 512;
const [nonBlocking, withoutTiming] = [1, 2];

/** A second stream, with the events by which it parts from the first and comes back. */
interface Side {
  readonly stream: bigint;
  readonly config: LaunchConfig;
  readonly forked: bigint;
  readonly ended: bigint;
}

function newSide(driver: DriverLibrary): Side {
  const room = new BigUint64Array(1);
  check(driver, 'cuStreamCreate', driver.cuStreamCreate(room, nonBlocking));
  const stream = room[0]!;
  const [forked, ended] = [0, 1].map(() => {
    check(driver, 'cuEventCreate', driver.cuEventCreate(room, withoutTiming));
    return room[0]!;
  });
  return { stream, config: new LaunchConfig(stream), forked: forked!, ended: ended! };
}

/** Enqueues launches on a stream, one foreign call each, without allocating. */
export class Launcher {
  readonly #driver: DriverLibrary;
  readonly #modules: KernelModules;
  readonly stream: bigint;
  readonly #config: LaunchConfig;
  #side: Side | null = null;
  // Buffers of their own, off the JavaScript heap: foreign structures hold their addresses.
  readonly #parameters = new DataView(new ArrayBuffer(parameterBytes));
  readonly #parameterList = new BigUint64Array(new ArrayBuffer(128));

  constructor(driver: DriverLibrary, modules: KernelModules, stream: bigint) {
    this.#driver = driver;
    this.#modules = modules;
    this.stream = stream;
    this.#config = new LaunchConfig(stream);
    this.#parameterList[0] = addressOf(this.#parameters);
  }

  run(launches: readonly Launch[]): void {
    let aside = false; // something runs beside the stream
    for (const one of launches) {
      if (aside && one.joins) {
        this.#join();
        aside = false;
      }
      if (one.beside) {
        this.#launchBeside(one);
        aside = true;
      } else {
        this.#launch(one, this.#config);
      }
    }
    if (aside) this.#join();
  }

  /** Destroys what launches beside the stream needed. */
  close(): void {
    if (this.#side === null) return;
    const { stream, forked, ended } = this.#side;
    for (const event of [forked, ended]) this.#driver.cuEventDestroy_v2(event);
    this.#driver.cuStreamDestroy_v2(stream);
    this.#side = null;
  }

  #launchBeside(one: Launch): void {
    const driver = this.#driver;
    this.#side ??= newSide(driver);
    const { stream, config, forked, ended } = this.#side;
    check(driver, 'cuEventRecord', driver.cuEventRecord(forked, this.stream));
    check(driver, 'cuStreamWaitEvent', driver.cuStreamWaitEvent(stream, forked, 0));
    this.#launch(one, config);
    check(driver, 'cuEventRecord', driver.cuEventRecord(ended, stream));
  }

  #join(): void {
    check(
      this.#driver,
      'cuStreamWaitEvent',
      this.#driver.cuStreamWaitEvent(this.stream, this.#side!.ended, 0),
    );
  }

  #launch(one: Launch, config: LaunchConfig): void {
    const { kernel, grid, threads, sharedBytes, cluster, structure, values } = one;
    config.begin(grid, threads, sharedBytes);
    if (one.overlapsPrevious) {
      config.attribute('CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION', 1);
    }
    if (cluster > 1) config.attribute('CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION', cluster, 1, 1);
    encodeParameters(structure, values, this.#parameters);
    const code = this.#driver.cuLaunchKernelEx(
      config.view,
      this.#modules.find(kernel),
      this.#parameterList,
      null,
    );
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
    check(driver, 'cuStreamBeginCapture', driver.cuStreamBeginCapture_v2(this.stream, threadLocal));
    const graph = new BigUint64Array(1);
    let failure: unknown = null;
    try {
      this.run(launches);
    } catch (error) {
      failure = error;
    }
    const ended = driver.cuStreamEndCapture(this.stream, graph);
    if (failure !== null) {
      if (graph[0] !== 0n) driver.cuGraphDestroy(graph[0]!);
      throw failure;
    }
    check(driver, 'cuStreamEndCapture', ended);
    const executable = new BigUint64Array(1);
    const code = driver.cuGraphInstantiateWithFlags(executable, graph[0]!, 0);
    driver.cuGraphDestroy(graph[0]!);
    check(driver, 'cuGraphInstantiate', code, `make a graph of ${launches.length} kernels`);
    return executable[0]!;
  }
}
