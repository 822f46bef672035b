import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TransferFile } from '../../src/backend/backend.js';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { ExecutionError } from '../../src/base/errors.js';
import { spanOf } from '../../src/memory/buffers.js';
import { floats, put, whyNoNative } from './native-support.js';

const missing = whyNoNative();
const byteLength = (6 << 20) + 123;
const content = new Uint8Array(byteLength);
let state = 20261130;
for (let i = 0; i < byteLength; i++) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  content[i] = state >>> 24;
}

describe.skipIf(missing !== null)(
  `native transfer${missing === null ? '' : ` (not run: ${missing})`}`,
  () => {
    let folder = '';
    let file: TransferFile = { path: '', descriptor: -1 };
    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), 'waybill-transfer-'));
      const path = join(folder, 'weights');
      writeFileSync(path, content);
      file = { path, descriptor: openSync(path, 'r') };
    });
    afterAll(() => {
      closeSync(file.descriptor);
      rmSync(folder, { recursive: true });
    });

    it('moves whole files, adjacent rows to scattered places, scattered rows to adjacent places', async () => {
      const backend = await openNative({ threads: 2 });
      const buffer = backend.allocate({ label: 'target', cause: 'staging', byteLength });
      const whole = await backend.transfer([{ file, position: 0, target: spanOf(buffer) }]);
      expect(whole.requestedBytes).toBe(byteLength);
      expect(whole.elapsedNs).toBeGreaterThan(0n);
      expect(Buffer.compare(await backend.read(spanOf(buffer)), content)).toBe(0);

      const row = 1000;
      const order = Array.from({ length: 400 }, (_, i) => (i * 37) % 400);
      const scattered = backend.allocate({ label: 'rows', cause: 'packet-rows', byteLength: row * 400 });
      const place = (slot: number) => ({ buffer: scattered, byteOffset: slot * row, byteLength: row });
      await backend.transfer(order.map((slot, i) => ({ file, position: i * row, target: place(slot) })));
      const bytes = await backend.read(spanOf(scattered));
      order.forEach((slot, i) => {
        const got = bytes.subarray(slot * row, (slot + 1) * row);
        expect(Buffer.compare(got, content.subarray(i * row, (i + 1) * row))).toBe(0);
      });
      await backend.transfer(
        order.map((from, slot) => ({ file, position: from * 7777, target: place(slot) })),
      );
      const gathered = await backend.read(spanOf(scattered));
      order.forEach((from, slot) => {
        const got = gathered.subarray(slot * row, (slot + 1) * row);
        expect(Buffer.compare(got, content.subarray(from * 7777, from * 7777 + row))).toBe(0);
      });
      await backend.close();
    });

    it('moves nothing when asked for nothing', async () => {
      const backend = await openNative({ threads: 1 });
      expect((await backend.transfer([])).requestedBytes).toBe(0);
      const empty = { buffer: put(backend, new Uint8Array(4)).buffer, byteOffset: 0, byteLength: 0 };
      expect((await backend.transfer([{ file, position: 0, target: empty }])).requestedBytes).toBe(0);
      backend.prefetch(file, []);
      backend.prefetch(file, [{ position: 0, byteLength: 4096 }]);
      await backend.close();
    });

    it('rejects with short-read where the file ends, and with the system text where reading fails', async () => {
      const backend = await openNative({ threads: 1 });
      const buffer = backend.allocate({ label: 'target', cause: 'staging', byteLength: 100 });
      const past = backend.transfer([{ file, position: byteLength - 40, target: spanOf(buffer) }]);
      await expect(past).rejects.toThrow(/the file ended after 40 of them/);
      await expect(past).rejects.toMatchObject({ code: 'short-read' });
      await expect(past).rejects.toThrow(ExecutionError);
      const closed = { path: 'gone', descriptor: 1_000_000 };
      const failed = backend.transfer([{ file: closed, position: 0, target: spanOf(buffer) }]);
      await expect(failed).rejects.toThrow(/"gone".*EBADF/);
      // The queue goes on after a failure.
      await backend.transfer([{ file, position: 0, target: spanOf(buffer) }]);
      expect(Buffer.compare(await backend.read(spanOf(buffer)), content.subarray(0, 100))).toBe(0);
      await backend.close();
    });

    it('transfers beside running submissions', async () => {
      const backend = await openNative({ threads: 2 });
      const sum = put(backend, new Float32Array(4096));
      const one = put(backend, new Float32Array(4096).fill(1));
      const target = backend.allocate({ label: 'target', cause: 'staging', byteLength });
      const add = { label: 'add', op: { kind: 'add', count: 4096, a: sum, b: one, out: sum } } as const;
      const work: Promise<unknown>[] = [];
      for (let i = 0; i < 40; i++) {
        work.push(backend.submit(Array.from({ length: 50 }, () => add)));
        work.push(backend.transfer([{ file, position: 0, target: spanOf(target) }]));
      }
      await Promise.all(work);
      expect((await floats(backend, sum)).every((value) => value === 2000)).toBe(true);
      expect(Buffer.compare(await backend.read(spanOf(target)), content)).toBe(0);
      await backend.close();
    });
  },
);
