import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadCompiler } from '../../src/backend/cuda/compiler.js';
import type { CudaBackend } from '../../src/backend/cuda/cuda-backend.js';
import { chooseDevice } from '../../src/backend/cuda/device.js';
import { loadDriver } from '../../src/backend/cuda/driver.js';
import { driverFunctions } from '../../src/backend/cuda/foreign.js';
import { fillPinned, freePinned } from '../../src/backend/cuda/pinned-memory.js';
import type { Op, PlacedOp } from '../../src/backend/ops.js';
import { type Span, spanOf } from '../../src/memory/buffers.js';
import { FakeDriver, openFake } from './cuda-fake-driver.js';

const request = (label: string, byteLength: number) => ({ label, cause: 'workspace', byteLength }) as const;

function addition(gpu: CudaBackend): Op {
  const [a, b, out] = [0, 1, 2].map((): Span => spanOf(gpu.allocate(request('numbers', 64))));
  return { kind: 'add', count: 16, a: a!, b: b!, out: out! };
}

const many = (op: Op, count: number): PlacedOp[] =>
  Array.from({ length: count }, (_, index) => ({ op, label: `layers.${index}.sum` }));

describe('faults of a GPU', () => {
  it('no memory left: a refusal with the figures, and what fits is still given', async () => {
    const fake = new FakeDriver();
    const gpu = openFake(fake);
    const first = gpu.allocate(request('first', 600_000));
    expect(() => gpu.allocate(request('second', 500_000))).toThrow(
      expect.objectContaining({
        name: 'SetupError',
        code: 'out-of-memory',
        message: 'Cannot allocate "second": the GPU refused 500000 bytes (448576 of 1048576 bytes are free)',
      }),
    );
    gpu.release(first);
    gpu.release(gpu.allocate(request('second', 500_000)));
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it.each([2 ** 33, 2 ** 45])(
    '%d bytes of host memory are refused before anything is made',
    async (byteLength) => {
      const fake = new FakeDriver();
      const gpu = openFake(fake);
      const request = { label: 'mirror', cause: 'dense-weights', byteLength } as const;
      await expect(gpu.hostTier.mirror({ path: 'none', descriptor: -1 }, 0, request)).rejects.toMatchObject({
        code: 'out-of-pinned-memory',
        message: expect.stringContaining(`Cannot pin ${byteLength} bytes of host memory for "mirror"`),
      });
      await gpu.close();
    },
  );

  it('no pinned memory left: a refusal that names the limit to raise; nothing stays behind', async () => {
    const fake = new FakeDriver();
    const gpu = openFake(fake);
    fake.faults.pinnedBytes = 100_000;
    const file = { path: 'none', descriptor: -1 };
    await expect(gpu.hostTier.mirror(file, 0, request('layers.0.second', 200_000))).rejects.toMatchObject({
      name: 'SetupError',
      code: 'out-of-pinned-memory',
      message: expect.stringMatching(/^Cannot pin 200000 bytes .*"layers.0.second".*ulimit -l/),
    });
    const op = addition(gpu);
    await gpu.submit(many(op, 1));
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it.skipIf(process.platform !== 'linux')(
    'large pinned memory is filled before it is pinned; a refusal or a failed read leaves nothing behind',
    async () => {
      const fake = new FakeDriver();
      const byteLength = 5 * 1024 * 1024;
      const enter = () => {};
      const fill = async (bytes: Uint8Array) => {
        expect(fake.live).toEqual({});
        bytes.fill(7, byteLength - 1);
      };
      const memory = await fillPinned(fake.library, enter, 'large', byteLength, fill);
      expect(memory.bytes.byteLength).toBe(byteLength);
      expect([memory.bytes[0], memory.bytes[byteLength - 1]]).toEqual([0, 7]);
      expect(memory.hostAddress % 256n).toBe(0n);
      expect(fake.live).toEqual({ 'pinned buffers': 1 });
      expect(freePinned(fake.library, memory)).toBe(0);
      const failing = fillPinned(fake.library, enter, 'large', byteLength, async () => {
        throw new RangeError('no more');
      });
      await expect(failing).rejects.toThrow('no more');
      fake.faults.pinnedBytes = byteLength - 1;
      await expect(
        fillPinned(fake.library, enter, 'large', byteLength, async () => {}),
      ).rejects.toMatchObject({
        code: 'out-of-pinned-memory',
        message: expect.stringMatching(/^Cannot pin 5242880 bytes .*"large": cuMemHostRegister .*ulimit -l/),
      });
      expect(fake.live).toEqual({});
    },
  );

  it.skipIf(process.platform !== 'linux')(
    'mirrors of large regions are pages of their own, freed with their buffers',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'waybill-mirror-'));
      const path = join(folder, 'weights');
      writeFileSync(path, new Uint8Array(9 * 1024 * 1024).fill(3));
      const descriptor = openSync(path, 'r');
      try {
        const fake = new FakeDriver();
        const gpu = openFake(fake);
        const before = gpu.usage.pinnedBytes;
        const byteLength = 8 * 1024 * 1024;
        const plain = await gpu.hostTier.mirror({ path, descriptor }, 64, request('rows', byteLength));
        const turned = await gpu.hostTier.mirror({ path, descriptor }, 64, request('turned', byteLength), {
          rows: 2048,
          columns: 2048,
          elementBytes: 2,
        });
        expect(gpu.usage.pinnedBytes - before).toBe(2 * byteLength);
        gpu.release(plain);
        expect(gpu.usage.pinnedBytes - before).toBe(byteLength);
        const short = gpu.hostTier.mirror({ path, descriptor }, 2 ** 20 + 1, request('short', byteLength));
        await expect(short).rejects.toMatchObject({ code: 'short-read' });
        gpu.release(turned);
        expect(gpu.usage.pinnedBytes).toBe(before);
        await gpu.close();
        expect(fake.live).toEqual({});
      } finally {
        closeSync(descriptor);
        rmSync(folder, { recursive: true });
      }
    },
  );

  it.each([false, true])('a kernel that fails: call, code, text and kernel; graphs %s', async (graphs) => {
    const fake = new FakeDriver();
    const gpu = openFake(fake, graphs);
    const op = addition(gpu);
    await gpu.submit(many(op, 3));
    const [kernel] = fake.launched;
    fake.faults.fatal = { kernel: kernel!, code: 719 };
    const failed = gpu.submit([{ op, label: 'layers.7.sum' }]);
    await expect(failed).rejects.toMatchObject({
      name: 'ExecutionError',
      code: 'gpu-failed',
      message: expect.stringMatching(
        new RegExp(
          `^Cannot go on with GPU 0: \\w+ failed with 719, CUDA_ERROR_719: text of error 719 while it ran "${kernel}" for "layers.7.sum"$`,
        ),
      ),
      data: expect.objectContaining({ cudaCode: 719, kernels: [kernel] }),
    });
    // Everything later meets the same error, giving back does not, and closing frees all.
    const first = await failed.catch((error: unknown) => error);
    expect(() => gpu.submit(many(op, 1))).toThrow(first as Error);
    expect(() => gpu.allocate(request('more', 4))).toThrow(first as Error);
    await expect(gpu.read(op.kind === 'add' ? op.out : fail())).rejects.toBe(first);
    gpu.release((op as Extract<Op, { kind: 'add' }>).out.buffer);
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it('of many kernels in flight the error names the range', async () => {
    const fake = new FakeDriver();
    const gpu = openFake(fake);
    const op = addition(gpu);
    await gpu.submit(many(op, 1));
    fake.faults.fatal = { kernel: fake.launched[0]!, code: 700 };
    expect(() => gpu.submit(many(op, 5))).toThrow(
      / while it ran \d+ kernels from "layers.0.sum" to "layers.4.sum", among them "/,
    );
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it('a launch that is refused names kernel and shape, and the next one is taken', async () => {
    const fake = new FakeDriver();
    const gpu = openFake(fake);
    const op = addition(gpu);
    await gpu.submit(many(op, 1));
    const [kernel] = fake.launched;
    fake.faults.refused = { kernel: kernel!, code: 701 };
    expect(() => gpu.submit(many(op, 1))).toThrow(
      expect.objectContaining({
        name: 'ExecutionError',
        code: 'kernel-failed',
        message: expect.stringMatching(
          new RegExp(`^Cannot launch "${kernel}" on .* threads: cuLaunchKernelEx failed with 701`),
        ),
        data: expect.objectContaining({ kernel, cudaCode: 701 }),
      }),
    );
    fake.faults.refused = null;
    await gpu.submit(many(op, 1));
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it.each([
    ['a launch', { refused: 701, capture: 0 }],
    ['the recording', { refused: 0, capture: 901 }],
  ] as const)('%s that fails while a graph is recorded leaves no recording open', async (_, codes) => {
    const fake = new FakeDriver();
    const gpu = openFake(fake, true);
    const op = addition(gpu);
    const ops = many(op, 12);
    await gpu.submit(ops);
    const [kernel] = fake.launched;
    fake.faults.refused = codes.refused === 0 ? null : { kernel: kernel!, code: codes.refused };
    fake.faults.capture = codes.capture;
    expect(() => gpu.submit(ops)).toThrow(expect.objectContaining({ name: 'ExecutionError' }));
    expect(fake.capturing).toBe(false);
    fake.faults.refused = null;
    fake.faults.capture = 0;
    await gpu.submit(ops);
    expect(gpu.usage.graphs).toBe(1);
    await gpu.close();
    expect(fake.live).toEqual({});
  });

  it('100 times opened and closed, nothing grows', async () => {
    const fake = new FakeDriver();
    for (let cycle = 0; cycle < 100; cycle += 1) {
      const gpu = openFake(fake, true);
      const op = addition(gpu);
      for (let time = 0; time < 3; time += 1) await gpu.submit(many(op, 12));
      gpu.write((op as Extract<Op, { kind: 'add' }>).a, new Uint8Array(64));
      await gpu.read((op as Extract<Op, { kind: 'add' }>).out);
      expect(gpu.usage.graphs).toBe(1);
      await gpu.close();
      expect(fake.live, `cycle ${cycle}`).toEqual({});
    }
  });

  it('no compiler library: says what to install', () => {
    expect(() => loadCompiler(['/nonexistent/libnvrtc.so.13'])).toThrow(
      expect.objectContaining({
        name: 'SetupError',
        code: 'no-cuda-compiler',
        message: expect.stringMatching(/^Cannot compile kernels: .*install the CUDA toolkit 12 or 13/),
        data: { tried: ['/nonexistent/libnvrtc.so.13'] },
      }),
    );
  });
});

const compiler = ['cc', 'gcc', 'clang'].find((name) => spawnSync(name, ['--version']).status === 0);
const elf = process.platform === 'linux';
const missing = !elf ? 'not run: no Linux' : compiler === undefined ? 'not run: no C compiler' : null;

describe.skipIf(missing !== null)(
  `drivers that cannot serve${missing === null ? '' : ` (${missing})`}`,
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'waybill-driver-'));
    afterAll(() => rmSync(folder, { recursive: true, force: true }));

    /** A library with the driver's names: every call answers 0, but for what `bodies` says. */
    function driverLibrary(
      name: string,
      bodies: Readonly<Record<string, string>>,
      without: string[] = [],
    ): string {
      const names = Object.keys(driverFunctions).filter((one) => !without.includes(one));
      const source = names.map((one) => `int ${one}(void *a, void *b) { ${bodies[one] ?? 'return 0;'} }`);
      const path = join(folder, `${name}.so`);
      writeFileSync(`${path}.c`, `${source.join('\n')}\n`);
      execFileSync(compiler!, ['-shared', '-fPIC', '-w', '-o', path, `${path}.c`]);
      return path;
    }
    const version = (value: number) => ({ cuDriverGetVersion: `*(int *)a = ${value}; return 0;` });
    const texts = {
      cuGetErrorName: '*(const char **)b = "CUDA_ERROR_UNKNOWN"; return 0;',
      cuGetErrorString: '*(const char **)b = "unknown error"; return 0;',
    };

    it.each([
      ['absent', null, 'no-cuda-driver', /^Cannot open CUDA: .* install the NVIDIA driver$/],
      [
        'too old',
        [version(11_000), []],
        'cuda-driver-too-old',
        /serves CUDA 11.0, install one for CUDA 11.8/,
      ],
      [
        'older than a function that is used',
        [version(13_000), ['cuLaunchKernelEx']],
        'cuda-driver-too-old',
        /lacks a function, install a driver for CUDA 11.8 or later .*cuLaunchKernelEx/,
      ],
      ['without a GPU', [{ ...version(13_000), cuInit: 'return 100;' }, []], 'no-gpu', /finds no GPU/],
      [
        'not to be initialized',
        [{ ...version(13_000), ...texts, cuInit: 'return 999;' }, []],
        'cuda-driver-failed',
        /^Cannot open CUDA: cuInit failed with 999, CUDA_ERROR_UNKNOWN: unknown error$/,
      ],
    ] as const)('%s', (name, library, code, message) => {
      const path =
        library === null
          ? join(folder, 'libcuda.so.1')
          : driverLibrary(name.replaceAll(' ', '-'), library[0], [...library[1]]);
      const loading = () => loadDriver(path);
      expect(loading).toThrow(expect.objectContaining({ name: 'SetupError', code }));
      expect(loading).toThrow(message);
    });

    it('one that shows no GPU', () => {
      const driver = loadDriver(driverLibrary('empty', version(13_000)));
      expect(() => chooseDevice(driver, 0)).toThrow(expect.objectContaining({ code: 'no-gpu' }));
    });
  },
);

function fail(): never {
  throw new Error('no addition');
}
