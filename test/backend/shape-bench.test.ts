import { expect, test } from 'vitest';
import type { Backend, HostTier } from '../../src/backend/backend.js';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { spanOf } from '../../src/memory/buffers.js';
import { benchShape } from '../cuda/shape-bench.js';

/** Native kernels with host memory that ops can read: what a GPU offers, in one address space. */
async function openTiered(): Promise<Backend> {
  const backend: Backend = await openNative({ threads: 1 });
  const hostTier: HostTier = {
    directRows: 4,
    mirror: async (file, position, request) => {
      const buffer = backend.allocate(request);
      await backend.transfer([{ file, position, target: spanOf(buffer) }]);
      return buffer;
    },
    measureLink: async () => ({
      denseBytesPerSecond: 1e9,
      rowBytesPerSecond: 1e9,
      deviceBytesPerSecond: 1e9,
    }),
  };
  const measure = async (enqueue: () => Promise<unknown>): Promise<number> => {
    const began = process.hrtime.bigint();
    await enqueue();
    return Number(process.hrtime.bigint() - began) / 1e6;
  };
  return Object.assign(backend, { hostTier, measure, usage: { pinnedBytes: 0, devicePeakBytes: 0 } });
}

test.skipIf(!nativeStatus().available)(
  'the shape benchmark works, and its figures agree with plans and one another',
  async () => {
    const lines: string[] = [];
    const report = await benchShape(
      {
        shapes: ['tiny'],
        budgets: [1.2, 0.7], // the head, which is the token table too, is held by the first alone
        shares: [0.1, 0.3],
        arms: [],
        promptTokens: 24,
        tokens: 6,
        rounds: 2,
        withCpu: false,
        rivals: null,
        openGpu: openTiered,
      },
      (line) => lines.push(line),
    );
    expect(report.failures, lines.join('\n')).toEqual([]);
    expect(report.copyGigabytesPerSecond).toBe(1);
    // Two without a budget and two a budget at the usual share; all but resident and stream at two more.
    expect(report.arms, lines.join('\n')).toHaveLength(2 + 2 * 2 + 2 * 3);
    const packets = report.arms.filter(({ arm }) => arm.startsWith('packets'));
    expect(packets.some(({ rowsPerToken }) => rowsPerToken > 0)).toBe(true);
    for (const { arm, bytesPerToken, plannedBytesPerToken, digests, parts } of report.arms) {
      expect(bytesPerToken, arm).toBe(plannedBytesPerToken);
      expect(digests).toHaveLength(6);
      for (const ms of Object.values(parts!)) expect(ms, arm).toBeGreaterThan(0);
    }
    expect(report.arms.find(({ arm }) => arm === 'resident')!.partsBy).toBe('pass');
    expect(report.arms.find(({ arm }) => arm === 'stream 70 % of weights')!.partsBy).toBe('submissions');
    expect(new Set(report.arms.map(({ digests }) => digests[5])).size).toBe(3); // one a share
    const streamed = report.arms.find(({ arm }) => arm === 'stream 70 % of weights');
    expect(streamed!.regime).toBe('A'); // not even attention is held whole, so the head, which comes behind it, streams
    const tight = packets.filter(({ arm }) => arm === 'packets 70 % of weights');
    const rows = tight.map(({ activeShare, rowsPerToken }) => [activeShare, rowsPerToken] as const);
    expect(rows.map(([share]) => share)).toEqual([0.034, 0.1, 0.3]);
    expect(rows.map(([, count]) => count)).toEqual(rows.map(([, count]) => count).sort((a, b) => a - b));
    const active = 4 * 1024 * 0.3; // of all layers; the least budget keeps none of them
    expect(rows[2]![1]).toBeGreaterThan(0.6 * active);
    expect(rows[2]![1]).toBeLessThan(1.4 * active);
  },
);
