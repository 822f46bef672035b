import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { SampledWatch } from '../../src/backend/cuda/device-watch.js';
import { MemorySampler, sampleIntervalMs, type UseReading } from '../../src/backend/cuda/memory-sampler.js';
import { ownBytes, takenBetween } from '../../src/backend/cuda/monitor.js';
import { processInfoLayout } from '../../src/backend/cuda/monitoring-library.js';

/** Readings one after another; the last stays. */
function readings(...bytes: number[]): () => Promise<UseReading> {
  let next = 0;
  return async () => ({ bytes: bytes[Math.min(next++, bytes.length - 1)]!, source: 'process' });
}

describe('samples of device memory', () => {
  it('keep the peak, and tell once what passes the limit', async () => {
    const sampler = new MemorySampler('gpu a', readings(10, 70, 40, 90, 20));
    expect(sampler.use).toBeNull();
    const exceeded = vi.fn();
    sampler.start(60, exceeded);
    await vi.waitFor(() => expect(sampler.use?.samples).toBeGreaterThan(5));
    await sampler.stop();
    const use = sampler.use!;
    expect(use).toMatchObject({
      source: 'process',
      peakBytes: 90,
      currentBytes: 20,
      intervalMs: sampleIntervalMs,
    });
    expect(use.longestGapMs).toBeGreaterThan(0);
    expect(exceeded.mock.calls).toEqual([[70, 'process']]);
    const { samples } = use;
    await delay(4 * sampleIntervalMs);
    expect(sampler.use!.samples).toBe(samples); // stopped
  });

  it('see the end of a run that is asked for', async () => {
    const sampler = new MemorySampler('gpu b', readings(5, 500));
    const exceeded = vi.fn();
    sampler.start(100, exceeded);
    await sampler.sample();
    expect(exceeded).toHaveBeenCalledTimes(1);
    await sampler.stop();
    await sampler.stop();
  });

  it('of two backends on one device are of neither', async () => {
    const [first, second] = [1, 2].map(() => new MemorySampler('gpu c', readings(1000)));
    const exceeded = vi.fn();
    first!.start(10, exceeded);
    await first!.sample();
    expect(first!.use?.source).toBe('shared');
    expect(exceeded).not.toHaveBeenCalled();
    await second!.stop();
    await first!.sample();
    expect(first!.use?.source).toBe('shared'); // what was shared once stays so
    await first!.stop();
    const alone = new MemorySampler('gpu c', readings(1000));
    alone.start(10, exceeded);
    await alone.sample();
    expect(alone.use?.source).toBe('process');
    expect(exceeded).toHaveBeenCalledTimes(1);
    await alone.stop();
  });

  it('are none where the system cannot tell, or fails', async () => {
    for (const read of [async () => null, async () => Promise.reject(new Error('injected'))]) {
      const sampler = new MemorySampler('gpu d', read);
      sampler.start(0, () => expect.unreachable());
      await sampler.sample();
      expect(sampler.use).toBeNull();
      await sampler.stop();
    }
  });
});

it('finds the bytes of a process in a list of nvmlProcessInfo_v2_t', () => {
  // nvml.h: unsigned int pid; unsigned long long usedGpuMemory; unsigned int gpuInstanceId, computeInstanceId
  expect(processInfoLayout).toEqual({ pid: 0, usedBytes: 8, byteLength: 24 });
  const list = new DataView(new ArrayBuffer(3 * 24));
  [
    [7, 100n],
    [8, 0xffff_ffff_ffff_ffffn],
    [9, 5_000_000_000n],
  ].forEach(([pid, bytes], index) => {
    list.setUint32(index * 24, Number(pid), true);
    list.setBigUint64(index * 24 + 8, BigInt(bytes!), true);
  });
  expect(ownBytes(list, 3, 9)).toBe(5_000_000_000);
  expect(ownBytes(list, 3, 7)).toBe(100);
  expect(ownBytes(list, 3, 8)).toBeNull(); // not told
  expect(ownBytes(list, 2, 9)).toBeNull(); // not in the list
});

it('what a context takes is what its own process has grown by, whatever others free meanwhile', () => {
  const seen = (allBytes: number | null, own: number | null) => ({ allBytes, ownBytes: own });
  expect(takenBetween(seen(900, null), seen(700, 270))).toBe(270); // another process ended
  expect(takenBetween(seen(900, 40), seen(1500, 300))).toBe(260);
  expect(takenBetween(seen(900, null), seen(1100, null))).toBe(200); // not named
  expect(takenBetween(seen(900, 50), seen(1100, 50))).toBe(200); // named is another one
  expect(takenBetween(seen(900, null), seen(700, null))).toBe(0);
  expect(takenBetween(seen(null, null), seen(null, null))).toBeNull();
});

it('a sample above the budget fails what the backend does from then on', async () => {
  const sampler = new MemorySampler('gpu w', readings(10, 70));
  const usage = { deviceBytes: 50, devicePeakBytes: 60, pinnedBytes: 7 };
  const watch = new SampledWatch(2, sampler, () => usage);
  watch.start(60);
  watch.require();
  const exceeded = expect.objectContaining({
    name: 'BudgetError',
    code: 'device-budget-exceeded',
    message: 'Cannot go on with GPU 2: this process uses 70 bytes, the budget is 60',
    data: { device: 2, sampledBytes: 70, budgetBytes: 60, source: 'process' },
  });
  await vi.waitFor(() => expect(() => watch.require()).toThrow(exceeded));
  await expect(watch.check()).rejects.toEqual(exceeded);
  expect(watch.use).toMatchObject({ allocatedBytes: 50, allocatedPeakBytes: 60, pinnedBytes: 7 });
  await watch.stop();
});
