import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { DriverLibrary } from '../../src/backend/cuda/driver.js';
import { launchConfigLayout } from '../../src/backend/cuda/launch-config.js';
import { measureOverlap } from '../cuda/device-timeline.js';
import { overlapFigures, type Stretch } from '../cuda/overlap.js';
import type { Measuring } from '../cuda/pass-times.js';

const at = (beganMs: number, endedMs: number): Stretch => ({ beganMs, endedMs });

describe('overlap of copies and kernels', () => {
  test('is told apart from waits and gaps', () => {
    // kernels: 0..4, 6..9; copies: 2..7, 10..11; nothing: 9..10
    const figures = overlapFigures([at(6, 9), at(0, 4)], [at(2, 7), at(10, 11)], 2);
    expect(figures).toEqual({
      computeMs: 3.5,
      copyMs: 3,
      regionOverlap: 0.5,
      exposedWaitMs: 1.5,
      dispatchGapMs: 0.5,
    });
    expect(overlapFigures([at(0, 1)], [], 1).regionOverlap).toBeNull();
  });

  test('adds up to the time from the first begin to the last end', () => {
    const stretches = fc.array(
      fc.tuple(fc.integer({ min: 0, max: 50 }), fc.integer({ min: 0, max: 9 })).map(([b, n]) => at(b, b + n)),
      { maxLength: 8 },
    );
    fc.assert(
      fc.property(stretches, stretches, (compute, copies) => {
        const all = [...compute, ...copies];
        fc.pre(all.length > 0);
        const { computeMs, exposedWaitMs, dispatchGapMs } = overlapFigures(compute, copies, 1);
        const begin = Math.min(...all.map(({ beganMs }) => beganMs));
        const end = Math.max(...all.map(({ endedMs }) => endedMs));
        expect(computeMs + exposedWaitMs + dispatchGapMs).toBe(end - begin);
      }),
      { seed: 20261130 },
    );
  });
});

/**
 * A driver whose streams work off what is enqueued, a millisecond each; events take the time at which their stream is. A graph
 * does on its streams what was enqueued while it was recorded; it takes a millisecond where that is nothing.
 */
function fakeDriver() {
  const ends = new Map<bigint, number>();
  const times = new Map<bigint, number>();
  let next = 1n;
  let host = 0;
  let recorded: (() => number)[] | null = null;
  const graphs = new Map<bigint, readonly (() => number)[]>();
  const doing = (action: () => number): number => {
    if (recorded === null) return action();
    recorded.push(action);
    return 0;
  };
  const work = (stream: bigint | number) => {
    ends.set(BigInt(stream), Math.max(ends.get(BigInt(stream)) ?? 0, host) + 1);
    return 0;
  };
  const driver = {
    cuEventCreate: (room: BigUint64Array) => {
      room[0] = next;
      next += 1n;
      return 0;
    },
    cuEventRecord: (event: bigint, stream: bigint) =>
      doing(() => {
        times.set(event, Math.max(ends.get(BigInt(stream)) ?? 0, host));
        return 0;
      }),
    cuEventRecordWithFlags: (event: bigint, stream: bigint) => driver.cuEventRecord(event, stream),
    cuStreamWaitEvent: (stream: bigint, event: bigint) =>
      doing(() => {
        ends.set(stream, Math.max(ends.get(stream) ?? 0, times.get(event)!));
        return 0;
      }),
    cuStreamSynchronize: () => 0,
    cuEventElapsedTime: (room: Float32Array, from: bigint, to: bigint) => {
      room[0] = times.get(to)! - times.get(from)!;
      return 0;
    },
    cuEventDestroy_v2: (event: bigint) => Number(!times.delete(event)),
    cuLaunchKernelEx: (config: DataView) => {
      const stream = config.getBigUint64(launchConfigLayout.hStream, true);
      return doing(() => work(stream));
    },
    cuGraphInstantiateWithFlags: (room: BigUint64Array) => {
      room[0] = next;
      graphs.set(next, recorded ?? []);
      recorded = null;
      next += 1n;
      return 0;
    },
    cuGraphLaunch: (graph: bigint, stream: bigint) => {
      const actions = graphs.get(graph) ?? [];
      for (const action of actions) action();
      return actions.length > 0 ? 0 : work(stream);
    },
    cuMemcpyAsync: (_to: bigint, _from: bigint, _size: number, stream: bigint) => work(stream),
    cuMemcpy2DAsync_v2: (_copy: BigUint64Array, stream: bigint) => work(stream),
    cuStreamBeginCapture_v2: () => {
      recorded = [];
      return 0;
    },
    cuStreamEndCapture: () => 0,
  };
  const wait = (ms: number) => {
    host += ms;
  };
  return { driver: driver as unknown as DriverLibrary, times, wait };
}

test('events lie around what submissions and transfers enqueue, not around what is captured', async () => {
  const { driver, times, wait } = fakeDriver();
  const before = { ...driver };
  const [computing, copying] = [7n, 8n];
  const config = new DataView(new ArrayBuffer(64));
  config.setBigUint64(launchConfigLayout.hStream, computing, true);
  const launch = () => driver.cuLaunchKernelEx(config, 0n, null, null);
  const gpu = {
    submit: async () => {
      wait(1); // planning: the device does nothing
      driver.cuStreamBeginCapture_v2(computing, 0);
      launch();
      driver.cuStreamEndCapture(computing, new BigUint64Array(1));
      driver.cuGraphInstantiateWithFlags(new BigUint64Array(1), 0n, 0);
      wait(1);
      driver.cuGraphLaunch(0n, computing);
      launch();
    },
    transfer: async () => {
      driver.cuMemcpyAsync(0n, 0n, 1, copying);
    },
  } as unknown as Measuring;
  const { submit, transfer } = gpu;
  const figures = await measureOverlap(
    gpu,
    async (begin) => {
      await gpu.submit([]); // not counted
      begin();
      wait(10);
      await gpu.transfer([]); // from 12 to 13
      await gpu.submit([]); // from 14 to 16: a capture takes no time of the device but is worked off by this one
      return 1;
    },
    driver,
  );
  expect(figures.copyMs).toBe(1);
  expect(figures.regionOverlap).toBe(0);
  expect(figures.computeMs).toBe(2);
  expect(figures.exposedWaitMs).toBe(1);
  expect(figures.dispatchGapMs).toBeGreaterThanOrEqual(1);
  expect([gpu.submit, gpu.transfer]).toEqual([submit, transfer]);
  expect(driver).toEqual(before);
  expect(times.size).toBe(0);
});

test('of passes that are one graph, events lie inside it', async () => {
  const { driver, times, wait } = fakeDriver();
  const before = { ...driver };
  const [computing, side] = [7n, 8n];
  const launchOn = (stream: bigint) => {
    const config = new DataView(new ArrayBuffer(64));
    config.setBigUint64(launchConfigLayout.hStream, stream, true);
    driver.cuLaunchKernelEx(config, 0n, null, null);
  };
  const [forked, ended] = [1000n, 1001n];
  let executable: bigint | null = null;
  let forgotten = 0;
  /** Copies of 3 ms beside kernels of 1 ms, then a kernel that waits for them. */
  const record = () => {
    driver.cuStreamBeginCapture_v2(computing, 0);
    driver.cuEventRecord(forked, computing);
    driver.cuStreamWaitEvent(side, forked, 0);
    for (let copy = 0; copy < 3; copy += 1) launchOn(side);
    driver.cuEventRecord(ended, side);
    launchOn(computing);
    driver.cuStreamWaitEvent(computing, ended, 0);
    launchOn(computing);
    driver.cuStreamEndCapture(computing, new BigUint64Array(1));
    const room = new BigUint64Array(1);
    driver.cuGraphInstantiateWithFlags(room, 0n, 0);
    return room[0]!;
  };
  const gpu = {
    submit: async () => {
      executable ??= record();
      driver.cuGraphLaunch(executable, computing);
    },
    transfer: async () => {},
    planWith: () => {
      executable = null;
      forgotten += 1;
    },
  } as unknown as Measuring;
  const figures = await measureOverlap(
    gpu,
    async (begin) => {
      await gpu.submit([]);
      begin();
      for (let pass = 0; pass < 3; pass += 1) {
        wait(50); // between passes: no part of the figures
        await gpu.submit([]);
      }
      return 3;
    },
    driver,
  );
  expect(figures).toEqual({
    computeMs: 2,
    copyMs: 3,
    regionOverlap: 1 / 3,
    exposedWaitMs: 2,
    dispatchGapMs: 0,
  });
  expect(forgotten).toBe(2);
  expect(driver).toEqual(before);
  for (const event of [forked, ended]) times.delete(event);
  expect(times.size).toBe(0);
});
