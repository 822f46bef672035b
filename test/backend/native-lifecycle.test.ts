import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { ExecutionError, SetupError, UsageError } from '../../src/base/errors.js';
import { spanOf } from '../../src/memory/buffers.js';
import { floats, put, whyNoNative } from './native-support.js';

const missing = whyNoNative();
const linux = process.platform === 'linux';
const builtModule = fileURLToPath(new URL('../../dist/backend/cpu/native-backend.js', import.meta.url));

function threadCount(): number {
  return readdirSync('/proc/self/task').length;
}

function residentKb(): number {
  const line = readFileSync('/proc/self/status', 'utf8').match(/VmRSS:\s+(\d+)/);
  return Number(line?.[1]);
}

/** Runs a module text in a Node.js of its own; `dist` because that process cannot load TypeScript. */
function runAlone(body: string): { status: number | null; stdout: string; stderr: string } {
  const text = `const { openNative } = await import(${JSON.stringify(pathToFileURL(builtModule).href)});\n${body}`;
  return spawnSync(process.execPath, ['--input-type=module', '-e', text], {
    encoding: 'utf8',
    timeout: 30_000,
  });
}

describe.skipIf(missing !== null)(`native backend${missing === null ? '' : ` (not run: ${missing})`}`, () => {
  it('refuses thread counts and instruction sets that it cannot have', async () => {
    await expect(openNative({ threads: 0 })).rejects.toThrow(UsageError);
    await expect(openNative({ threads: 1.5 })).rejects.toThrow(UsageError);
    for (const instructionSet of (['avx2', 'avx512'] as const).filter(
      (name) => !nativeStatus().instructionSets.includes(name),
    )) {
      await expect(openNative({ threads: 1, instructionSet })).rejects.toThrow(SetupError);
    }
  });

  it('refuses a closed backend, a released buffer and a span outside its buffer', async () => {
    const backend = await openNative({ threads: 2 });
    const span = put(backend, new Float32Array([1, 2, 3]));
    expect(() => backend.write({ ...span, byteOffset: 4 }, new Uint8Array(12))).toThrow(RangeError);
    await expect(backend.read({ ...span, byteLength: 16 })).rejects.toThrow(RangeError);
    backend.release(span.buffer);
    expect(() => backend.release(span.buffer)).toThrow(RangeError);
    await expect(backend.read(span)).rejects.toThrow(RangeError);
    await backend.close();
    await backend.close();
    expect(() => backend.allocate({ label: 'late', cause: 'workspace', byteLength: 4 })).toThrow(
      ExecutionError,
    );
  });

  it('refuses more memory than there is, by name', async () => {
    const backend = await openNative({ threads: 1 });
    const request = { label: 'everything', cause: 'dense-weights', byteLength: 2 ** 52 } as const;
    expect(() => backend.allocate(request)).toThrow(/Cannot allocate "everything"/);
    await backend.close();
  });

  it('hands out zeroed buffers aligned to 64', async () => {
    const backend = await openNative({ threads: 1 });
    for (const byteLength of [1, 4, 4096, 5 << 20]) {
      const buffer = backend.allocate({ label: 'fresh', cause: 'workspace', byteLength });
      expect(buffer.address % 64).toBe(0);
      expect((await backend.read(spanOf(buffer))).every((byte) => byte === 0)).toBe(true);
    }
    await backend.close();
  });

  it('reads, writes and computes beyond 4 GiB of one buffer', async () => {
    const backend = await openNative({ threads: 2 });
    const buffer = backend.allocate({ label: 'big', cause: 'dense-weights', byteLength: 5 * 2 ** 30 });
    const far = { buffer, byteOffset: 4.5 * 2 ** 30, byteLength: 16 };
    backend.write(far, new Uint8Array(new Float32Array([1, 2, 3, 4]).buffer));
    expect([...(await floats(backend, far))]).toEqual([1, 2, 3, 4]);
    expect([...(await floats(backend, { ...far, byteOffset: 0.5 * 2 ** 30 }))]).toEqual([0, 0, 0, 0]);
    const out = put(backend, new Float32Array(4));
    const tableRows = (5 * 2 ** 30) / 16;
    const ids = put(backend, new Int32Array([(4.5 * 2 ** 30) / 16]));
    const table = spanOf(buffer);
    await backend.submit([
      {
        label: 'far gather',
        op: {
          kind: 'gather',
          rows: 1,
          columns: 4,
          table,
          tableRows,
          type: 'f32',
          rowStride: 4,
          columnStride: 1,
          ids,
          out,
        },
      },
      { label: 'far add', op: { kind: 'add', count: 4, a: far, b: out, out } },
    ]);
    expect([...(await floats(backend, out))]).toEqual([2, 4, 6, 8]);
    await backend.close();
  });

  it('runs submissions in order, and goes on after one that failed', async () => {
    const backend = await openNative({ threads: 3 });
    const x = put(backend, new Float32Array([1]));
    const double = { label: 'double', op: { kind: 'add', count: 1, a: x, b: x, out: x } } as const;
    const table = put(backend, new Float32Array(4));
    const outside = {
      label: 'outside',
      op: {
        kind: 'gather',
        rows: 1,
        columns: 1,
        table,
        tableRows: 4,
        type: 'f32',
        rowStride: 1,
        columnStride: 1,
        ids: put(backend, new Int32Array([4])),
        out: put(backend, new Float32Array(1)),
      },
    } as const;
    const first = Array.from({ length: 10 }, () => backend.submit([double]));
    const failing = backend.submit([double, outside, double]);
    const last = backend.submit([double]);
    await expect(failing).rejects.toThrow(/"outside"/);
    await Promise.all([...first, last]);
    expect([...(await floats(backend, x))]).toEqual([2 ** 12]);
    await backend.close();
  });

  it.skipIf(!linux)('gives memory back when a buffer is released', async () => {
    const backend = await openNative({ threads: 1 });
    const before = residentKb();
    const buffer = backend.allocate({ label: 'large', cause: 'dense-weights', byteLength: 128 << 20 });
    const part = new Uint8Array(1 << 20).fill(1);
    for (let at = 0; at < buffer.byteLength; at += part.length) {
      backend.write({ buffer, byteOffset: at, byteLength: part.length }, part);
    }
    const held = residentKb();
    backend.release(buffer);
    const after = residentKb();
    expect(held - before).toBeGreaterThan(120 << 10);
    expect(held - after).toBeGreaterThan(120 << 10);
    await backend.close();
  });

  it.skipIf(!linux)('leaves no thread and no memory behind in 200 opens and closes', async () => {
    const cycle = async () => {
      const backend = await openNative({ threads: 3 });
      const x = put(backend, new Float32Array([1, 2]));
      await backend.submit([{ label: 'add', op: { kind: 'add', count: 2, a: x, b: x, out: x } }]);
      await backend.close();
    };
    for (let i = 0; i < 20; i++) await cycle();
    const threads = threadCount();
    const resident = residentKb();
    for (let i = 0; i < 200; i++) await cycle();
    expect(threadCount()).toBeLessThanOrEqual(threads);
    // 200 leaks of one thread's scratch would be 150 MB; the garbage collector's own growth stays far below 40.
    expect(residentKb() - resident).toBeLessThan(40 << 10);
  });

  it('lets the process end by itself, closed or not, idle or in the middle of work', () => {
    expect(existsSync(builtModule), 'dist is missing: run "npm run build" first').toBe(true);
    const use = `const backend = await openNative({ threads: 3 });
const buffer = backend.allocate({ label: 'x', cause: 'workspace', byteLength: 4 << 20 });
const x = { buffer, byteOffset: 0, byteLength: 4 << 20 };
const op = { kind: 'add', count: 1 << 20, a: x, b: x, out: x };
await backend.submit([{ label: 'add', op }]);`;
    const endings = {
      open: '',
      closed: 'await backend.close();',
      'exit while computing':
        'backend.submit(Array.from({ length: 3000 }, () => ({ label: "add", op }))); process.exit(0);',
    };
    for (const [name, ending] of Object.entries(endings)) {
      const run = runAlone(`${use}\n${ending}\nconsole.log('over');`);
      expect(run.status, `${name}: ${run.stderr}`).toBe(0);
    }
  }, 90_000);
});
