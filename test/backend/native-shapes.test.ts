import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { NativeBackend, openNative } from '../../src/backend/cpu/native-backend.js';
import { loadNativeLibrary } from '../../src/backend/cpu/native-library.js';
import { instructionSets, nativeStatus } from '../../src/backend/cpu/native-status.js';
import type { KvLayer, Op } from '../../src/backend/ops.js';
import { Bench, Random } from './native-bench.js';
import { shapeParts } from './native-shape-cases.js';
import { whyNoNative } from './native-support.js';

const missing = whyNoNative();
const present = nativeStatus().instructionSets;
const nativeFolder = fileURLToPath(new URL('../../native', import.meta.url));
/** As scripts/build-native.mjs takes them where there are no units for instruction sets of x64. */
const plainSources = readdirSync(nativeFolder).filter((name) => /^(?!kernels-avx).*\.cpp$/.test(name));

async function openAll(threadCounts: readonly number[]): Promise<Bench> {
  const options = present.flatMap((instructionSet) =>
    threadCounts.map((threads) => ({ instructionSet, threads })),
  );
  return new Bench(await Promise.all(options.map(openNative)));
}

const threadCounts = [1, 2, 3, 5];

describe.skipIf(missing !== null)(
  `native kernels equal the oracle${missing === null ? '' : ` (not run: ${missing})`}`,
  () => {
    it.each(Object.entries(shapeParts))(
      `%s, on ${present.join(', ')} with ${threadCounts.join(', ')} threads`,
      async (_, part) => {
        const seed = Date.now() >>> 0;
        const bench = await openAll(threadCounts);
        try {
          await part(bench, new Random(seed));
        } catch (error) {
          expect.fail(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`);
        } finally {
          await bench.close();
        }
      },
      120_000,
    );

    for (const set of instructionSets.filter((name) => !present.includes(name))) {
      it.skip(`${set} (not run: this processor does not have it)`, () => {});
    }

    it('store-kv refuses a finite value that F16 cannot hold, and stores infinities and NaN', async () => {
      const bench = await openAll([2]);
      const cache: KvLayer = {
        type: 'f16',
        keys: bench.put(new Float32Array(80)),
        values: bench.put(new Float32Array(80)),
        slots: 1,
        kvHeads: 2,
        headDim: 10,
        capacity: 8,
      };
      const positions = bench.put(Int32Array.from([0, 3]));
      const fine = new Float32Array(20).fill(65519);
      fine.set([
        Infinity,
        -Infinity,
        65504,
        2 ** -24,
        2 ** -25,
        2 ** -25 * 1.0001,
        -(2 ** -14),
        1 + 2 ** -11,
      ]);
      const keys = bench.put(fine);
      const results = [cache.keys, cache.values];
      await bench.same(
        { kind: 'store-kv', rows: 1, positions, keys, values: keys, cache },
        results,
        'values that fit',
        true,
      );
      const large = bench.put(new Float32Array(20).fill(65520, 13, 14));
      const op: Op = { kind: 'store-kv', rows: 1, positions, keys: large, values: keys, cache };
      for (const [index, native] of bench.natives.entries()) {
        const storing = native.submit([{ label: 'layers.1.kv', op: bench.opFor(op, index) }]);
        await expect(storing).rejects.toMatchObject({ code: 'kv-overflow' });
      }
      await bench.close();
    });
  },
);

const compiler =
  process.arch === 'x64' && process.platform === 'linux' && spawnSync('c++', ['--version']).status === 0;
const noPlain = missing ?? (compiler ? null : 'needs c++ on x64 Linux');

describe.skipIf(noPlain !== null)(
  `plain vectors, the unit of arm64${noPlain === null ? '' : ` (not run: ${noPlain})`}`,
  () => {
    it('equal the oracle on every shape', async () => {
      const folder = mkdtempSync(join(tmpdir(), 'waybill-plain-'));
      const seed = Date.now() >>> 0;
      try {
        const path = join(folder, 'libplain.so');
        const flags = nativeStatus().build!.flags.map((flag) => (flag === '-O3' ? '-O1' : flag));
        const build = spawnSync(
          'c++',
          [...flags, '-DWAYBILL_PLAIN_VECTORS', '-shared', ...plainSources, '-o', path],
          { cwd: nativeFolder, encoding: 'utf8' },
        );
        expect(build.status, build.stderr).toBe(0);
        const library = loadNativeLibrary(path);
        const info = { name: 'cpu', reason: 'test', numerics: 'portable', kernelDigest: null } as const;
        const natives = [1, 3].map(
          (threads) =>
            new NativeBackend(library, library.open(threads, 0, 1)!, { ...info, threads, kernels: 'plain' }),
        );
        const bench = new Bench(natives);
        const random = new Random(seed);
        for (const part of Object.values(shapeParts)) await part(bench, random);
        await bench.close();
      } catch (error) {
        expect.fail(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`);
      } finally {
        rmSync(folder, { recursive: true });
      }
    }, 120_000);
  },
);
