import { check, type DriverLibrary, loadDriver } from '../../src/backend/cuda/driver.js';
import { launchConfigLayout } from '../../src/backend/cuda/launch-config.js';
import { GraphTimeline } from './graph-timeline.js';
import { type OverlapFigures, overlapFigures, type Stretch } from './overlap.js';
import type { Measuring } from './pass-times.js';

type Kind = 'compute' | 'copy';
interface Mark {
  readonly kind: Kind;
  readonly began: bigint;
  readonly ended: bigint;
}

/**
 * Runs decode passes with events around what each submission and each transfer brings to the device. `run` calls what it is
 * given when the passes that count begin, and resolves with their number when all have ended. An event costs the host a few
 * microseconds, which is part of the gaps that are reported. Passes that are one graph with copies of its own are recorded anew
 * with events inside, and looked at from their first kernel to their last.
 */
export async function measureOverlap(
  gpu: Measuring,
  run: (begin: () => void) => Promise<number>,
  driver: DriverLibrary = loadDriver(),
): Promise<OverlapFigures> {
  const marks: Mark[] = [];
  let running: Kind | null = null; // what the call that runs brings, once `begin` was called
  let stream: bigint | number = 0;
  let began: bigint | null = null;
  let counting = false;
  const graphs = new GraphTimeline({ ...driver });
  const event = (on: bigint | number): bigint => {
    const room = new BigUint64Array(1);
    check(driver, 'cuEventCreate', plain.cuEventCreate(room, 0));
    check(driver, 'cuEventRecord', plain.cuEventRecord(room[0]!, on));
    return room[0]!;
  };
  /** Before the first work of a call. */
  const touch = (on: bigint | number): void => {
    if (running === null || graphs.capturing || began !== null) return;
    stream = on;
    began = event(on);
  };
  const around = <Value>(kind: Kind, call: () => Value): Value => {
    running = counting ? kind : null;
    began = null;
    const value = call(); // enqueues all that it has before it returns
    if (running !== null && began !== null) marks.push({ kind, began, ended: event(stream) });
    running = null;
    return value;
  };
  const plain = { ...driver };
  const inside = graphs.hooks;
  const { submit, transfer } = gpu;
  Object.assign(driver, {
    ...inside,
    cuLaunchKernelEx: (...values: Parameters<DriverLibrary['cuLaunchKernelEx']>) => {
      const { buffer, byteOffset } = values[0]!;
      touch(new DataView(buffer, byteOffset).getBigUint64(launchConfigLayout.hStream, true));
      return inside.cuLaunchKernelEx!(...values);
    },
    cuGraphLaunch: (...values: Parameters<DriverLibrary['cuGraphLaunch']>) => {
      if (graphs.knows(values[0])) return graphs.launch(...values, counting);
      touch(values[1]);
      return plain.cuGraphLaunch(...values);
    },
    cuMemcpyAsync: (...values: Parameters<DriverLibrary['cuMemcpyAsync']>) => {
      touch(values[3]);
      return plain.cuMemcpyAsync(...values);
    },
    cuMemcpy2DAsync_v2: (...values: Parameters<DriverLibrary['cuMemcpy2DAsync_v2']>) => {
      touch(values[1]);
      return plain.cuMemcpy2DAsync_v2(...values);
    },
  } satisfies Partial<DriverLibrary>);
  gpu.submit = (ops) => around('compute', () => submit.call(gpu, ops));
  gpu.transfer = (transfers) => around('copy', () => transfer.call(gpu, transfers));
  gpu.planWith?.({}); // graphs are recorded anew
  try {
    const passes = await run(() => {
      counting = true;
    });
    graphs.harvest();
    if (graphs.runs > 0) return overlapFigures(graphs.compute, graphs.copies, graphs.runs);
    return overlapFigures(...stretchesOf(driver, marks), passes);
  } finally {
    Object.assign(gpu, { submit, transfer });
    Object.assign(driver, plain);
    gpu.planWith?.({});
    graphs.close();
    for (const { began, ended } of marks) for (const one of [began, ended]) driver.cuEventDestroy_v2(one);
  }
}

function stretchesOf(driver: DriverLibrary, marks: readonly Mark[]): [Stretch[], Stretch[]] {
  const origin = marks[0]?.began ?? 0n;
  const at = (event: bigint): number => {
    const elapsed = new Float32Array(1);
    check(driver, 'cuEventElapsedTime', driver.cuEventElapsedTime(elapsed, origin, event));
    return elapsed[0]!;
  };
  const of = (wanted: Kind) =>
    marks
      .filter(({ kind }) => kind === wanted)
      .map(({ began, ended }) => ({ beganMs: at(began), endedMs: at(ended) }));
  return [of('compute'), of('copy')];
}
