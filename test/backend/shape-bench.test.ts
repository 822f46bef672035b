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
  return Object.assign(backend, { hostTier });
}

test.skipIf(!nativeStatus().available)(
  'the shape benchmark works, and its figures agree with plans and one another',
  async () => {
    const lines: string[] = [];
    const report = await benchShape(
      {
        shapes: ['tiny'],
        budgets: [1.2, 0.7], // the head, which is the token table too, is held by the first alone
        shares: [0.1],
        promptTokens: 24,
        tokens: 4,
        rounds: 2,
        withCpu: false,
        rivals: null,
        openGpu: openTiered,
      },
      (line) => lines.push(line),
    );
    expect(report.failures, lines.join('\n')).toEqual([]);
    expect(report.copyGigabytesPerSecond).toBeNull(); // only the fixed arms of the 2.7B shape keep it
    expect(report.arms, lines.join('\n')).toHaveLength(15);
    const packets = report.arms.filter(({ arm }) => arm.startsWith('packets'));
    expect(packets.some(({ rowsPerToken }) => rowsPerToken > 0)).toBe(true);
    for (const { arm, bytesPerToken, plannedBytesPerToken, digests } of report.arms) {
      expect(bytesPerToken, arm).toBe(plannedBytesPerToken);
      expect(digests).toHaveLength(4);
    }
    const streamed = report.arms.find(({ arm }) => arm === 'stream 70 % of weights');
    expect(streamed!.regime).toBe('A'); // not even attention is held whole, so the head, which comes behind it, streams
    const rowsAt = (share: number) => packets.find(({ activeShare }) => activeShare === share)!.rowsPerToken;
    expect(rowsAt(0.1)).toBeGreaterThan(rowsAt(0.034));
  },
);
