import { describe, expect, it } from 'vitest';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';
import { openCpu } from '../../src/backend/cpu/open-cpu.js';
import { openWasm } from '../../src/backend/cpu/wasm-backend.js';
import { builtModule } from '../../src/base/built-module.js';
import { SetupError } from '../../src/base/errors.js';
import { spanOf } from '../../src/memory/buffers.js';
import { floats, matrixVector, put, runAlone } from './wasm-support.js';

describe('threads of the WebAssembly kernels', () => {
  it('let the process end by itself, open or closed, idle or after work', () => {
    const work = `
      const backend = await openWasm({ threads: 3 });
      const buffer = backend.allocate({ label: 'x', cause: 'workspace', byteLength: 4096 });
      const span = { buffer, byteOffset: 0, byteLength: 4096 };
      const op = { kind: 'add', count: 1024, a: span, b: span, out: span };`;
    const submit = `await backend.submit([{ label: 'add', op }]);`;
    for (const body of [
      '',
      submit,
      `${submit} await backend.close();`,
      `backend.submit([{ label: 'add', op }]);`,
    ]) {
      const ended = runAlone(`${work}\n${body}\nconsole.log('end of module');`);
      expect(ended).toMatchObject({ status: 0, stdout: 'end of module\n', stderr: '' });
    }
  });

  it('keep the process alive until what was submitted is done', () => {
    const ended = runAlone(`
      const backend = await openWasm({ threads: 2 });
      const buffer = backend.allocate({ label: 'x', cause: 'workspace', byteLength: 4e7 });
      const span = { buffer, byteOffset: 0, byteLength: 4e7 };
      const op = { kind: 'add', count: 1e7, a: span, b: span, out: span };
      const ops = Array.from({ length: 20 }, () => ({ label: 'add', op }));
      backend.submit(ops).then(() => console.log('done'));`);
    expect(ended).toMatchObject({ status: 0, stdout: 'done\n', stderr: '' });
  });

  it('reject what runs when one of them dies, and everything after', async () => {
    const backend = await openWasm({ threads: 3 });
    const inputs = 4096;
    const x = put(backend, 'x', new Float32Array(inputs));
    const matrix = put(backend, 'matrix', new Float32Array(inputs * 1024));
    const out = put(backend, 'out', new Float32Array(1024));
    const op = matrixVector(x, matrix, out, inputs, 1024);
    const running = backend.submit(Array.from({ length: 250 }, () => ({ label: 'long', op })));
    const behind = backend.submit([{ label: 'behind', op }]);
    const failure = { name: 'ExecutionError', code: 'worker-died', data: { thread: 1, threads: 3 } };
    const all = Promise.all([
      expect(running).rejects.toMatchObject(failure),
      expect(behind).rejects.toMatchObject(failure),
    ]);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await backend.threads.workers[1]!.terminate();
    await all;
    await expect(backend.submit([{ label: 'later', op }])).rejects.toMatchObject(failure);
    await backend.close();
  });

  it('report an op that leaves the memory as a dead thread, not as a hang', async () => {
    const backend = await openWasm({ threads: 2, maximumBytes: 2 ** 22 });
    const x = put(backend, 'x', new Float32Array(16));
    const beyond = { buffer: { ...x.buffer, address: 2 ** 31 }, byteOffset: 0, byteLength: 64 };
    const op = { kind: 'add', count: 1024, a: beyond, b: beyond, out: x } as const;
    await expect(backend.submit([{ label: 'beyond', op }])).rejects.toMatchObject({ code: 'worker-died' });
    await backend.close();
  });

  it('come and go fifty times', async () => {
    for (let cycle = 0; cycle < 50; cycle++) {
      const backend = await openWasm({ threads: 2 });
      const x = put(backend, 'x', new Float32Array([1, 2, 3]));
      const op = { kind: 'add', count: 3, a: x, b: x, out: x } as const;
      await backend.submit([{ label: 'add', op }]);
      expect([...(await floats(backend, x))]).toEqual([2, 4, 6]);
      await backend.close();
    }
  });

  it('run more ops in one submission than one dispatch holds, and name the one that fails', async () => {
    const backend = await openWasm({ threads: 2 });
    const x = put(backend, 'x', new Float32Array(1000).fill(1));
    const half = put(backend, 'half', new Float32Array(1000).fill(0));
    const double = { kind: 'add', count: 1000, a: x, b: x, out: x } as const;
    const keep = { kind: 'add', count: 1000, a: x, b: half, out: x } as const;
    const ops = Array.from({ length: 700 }, (_, index) => (index % 7 === 0 ? double : keep));
    await backend.submit(ops.map((op, index) => ({ label: `op ${index}`, op })));
    expect((await floats(backend, x)).every((value) => value === 2 ** 100)).toBe(true);
    const ids = backend.allocate({ label: 'ids', cause: 'indices', byteLength: 4 });
    backend.write(spanOf(ids), new Uint8Array(Int32Array.of(-1).buffer));
    const gather = {
      kind: 'gather',
      rows: 1,
      columns: 4,
      table: x,
      tableRows: 250,
      type: 'f32',
      rowStride: 4,
      columnStride: 1,
      ids: spanOf(ids),
      out: half,
    } as const;
    const failing = [...ops.slice(0, 300), gather, ...ops.slice(0, 300)];
    await expect(
      backend.submit(failing.map((op, index) => ({ label: `op ${index}`, op }))),
    ).rejects.toMatchObject({ name: 'DefectError', message: expect.stringContaining('"op 300"') });
    await backend.close();
  });
});

describe('choice of CPU kernels', () => {
  it('takes WebAssembly when asked and says so', async () => {
    const backend = await openCpu({ threads: 2, kernels: 'wasm' });
    expect(backend.info).toMatchObject({
      name: 'cpu',
      kernels: 'wasm simd',
      reason: 'WebAssembly kernels were asked for',
      numerics: 'portable',
      threads: 2,
      kernelDigest: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    await backend.close();
  });

  it('takes native kernels where they load, else WebAssembly with the reason', async () => {
    const status = nativeStatus();
    const backend = await openCpu();
    if (status.available) expect(backend.info.kernels).toMatch(/^native /);
    else
      expect(backend.info).toMatchObject({
        kernels: 'wasm simd',
        reason: `native kernels: ${status.reason}`,
      });
    await backend.close();
  });

  it('names a file that is not built', () => {
    expect(() => builtModule('backend/cpu/absent.wasm')).toThrow(SetupError);
    expect(() => builtModule('backend/cpu/absent.wasm')).toThrow(
      /absent\.wasm": it is not built, run "npm run build"$/,
    );
  });
});
