import { existsSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend, Runs } from '../../src/backend/backend.js';
import { copyOfRuns } from '../../src/backend/cuda/file-transfers.js';
import { transposeTile } from '../../src/checkpoint/transpose.js';
import { type DeviceBuffer, spanOf } from '../../src/memory/buffers.js';
import { describe as describeModel, gatedConfig, optConfig } from './support/opt-shape.js';
import { writePrepared } from './support/prepared-file.js';
import { openOracle, openSession, plan } from './support/session.js';

const maxRows = 12;
const shape = { hiddenSize: 20, ffnSize: 300, layers: 2, heads: 2, vocabSize: 40, maxPositions: 30 };
const passes = [
  { kind: 'prefill', ids: [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], wantsHead: true },
  { kind: 'decode', ids: [5], wantsHead: true },
  { kind: 'decode', ids: [8, 9], wantsHead: true },
] as const;

/** The oracle with mirrors, transposed ones among them, and transfers of runs out of those. */
async function withMirrors(): Promise<{ backend: Backend; runs: Runs[] }> {
  const oracle = await openOracle();
  const runs: Runs[] = [];
  const mirrors = new Map<number, { bytes: Uint8Array; transposed: boolean }>();
  const own: Partial<Backend> = {
    hostTier: {
      directRows: 4,
      mirror: async (file, position, request, transposed): Promise<DeviceBuffer> => {
        const buffer = oracle.allocate(request);
        await oracle.transfer([{ file, position, target: spanOf(buffer) }]);
        const bytes = (await oracle.read(spanOf(buffer))).slice();
        if (transposed !== undefined) {
          const { rows, columns, elementBytes } = transposed;
          const source = bytes.slice().buffer;
          transposeTile(source, bytes.buffer, rows, columns, elementBytes);
        }
        mirrors.set(position, { bytes, transposed: transposed !== undefined });
        return buffer;
      },
    },
    transfer: async (transfers) => {
      const began = process.hrtime.bigint();
      let requestedBytes = 0;
      for (const transfer of transfers) {
        const { position, target } = transfer;
        requestedBytes += target.byteLength;
        if (transfer.runs === undefined) {
          expect(mirrors.get(position)?.transposed ?? false).toBe(false);
          await oracle.transfer([transfer]);
          continue;
        }
        runs.push(transfer.runs);
        const { bytes, transposed } = mirrors.get(position)!;
        const { offset, count, byteLength, pitch } = transfer.runs;
        expect([transposed, count * pitch, count * byteLength]).toEqual([
          true,
          bytes.byteLength,
          target.byteLength,
        ]);
        const gathered = new Uint8Array(target.byteLength);
        for (let run = 0; run < count; run += 1) {
          const at = offset + run * pitch;
          gathered.set(bytes.subarray(at, at + byteLength), run * byteLength);
        }
        oracle.write(target, gathered);
      }
      return { requestedBytes, elapsedNs: process.hrtime.bigint() - began };
    },
  };
  const backend = new Proxy(oracle, {
    get: (target, name) => {
      const value = name in own ? own[name as keyof Backend] : target[name as keyof Backend];
      return typeof value === 'function' ? (value as (...all: unknown[]) => unknown).bind(target) : value;
    },
    has: (target, name) => name in own || name in target,
  });
  return { backend, runs };
}

describe.each([
  ['OPT', optConfig(shape)],
  ['gated ReLU', gatedConfig(shape)],
] as const)('strided stream, %s', (_, config) => {
  const prepared = writePrepared(describeModel(config, 'f16'), 5, () => 'mixed');
  let mirrored: Awaited<ReturnType<typeof withMirrors>>;
  beforeAll(async () => {
    mirrored = await withMirrors();
  });
  afterAll(async () => {
    await mirrored.backend.close();
    await prepared.close();
  });

  async function run(extra: Parameters<typeof plan>[3]) {
    const placement = plan(prepared, 'stream', maxRows, { hostTier: true, ...extra });
    const session = await openSession(mirrored.backend, prepared, placement);
    const drive = session.drive();
    const outputs: Buffer[] = [];
    for (const { kind, ids, wantsHead } of passes)
      outputs.push(Buffer.from(await drive.pass(kind, ids, wantsHead)));
    drive.close();
    await session.source.close();
    return { outputs, moved: session.ledger.totals().moved['dense-weights'], placement };
  }

  it('gives the bits and moves the bytes of the packed stream', async () => {
    const { minimumBytes, totalBytes } = plan(prepared, 'stream', maxRows, { hostTier: true });
    for (const budgetBytes of [minimumBytes, totalBytes]) {
      const packed = await run({ budgetBytes });
      mirrored.runs.length = 0;
      const strided = await run({ budgetBytes, streamLayout: 'strided' });
      expect(strided.outputs).toEqual(packed.outputs);
      expect(strided.moved).toBe(packed.moved);
      expect(strided.placement.streamLayout).toBe('strided');
      expect(packed.placement.streamLayout).toBeUndefined();
      // A piece is a run out of the row of every output.
      expect(mirrored.runs.length).toBeGreaterThanOrEqual(2 * passes.length);
      for (const { count, pitch } of mirrored.runs) {
        expect([count, pitch]).toEqual([shape.hiddenSize, shape.ffnSize * 2]);
      }
    }
  });
});

describe('strided stream', () => {
  it.each([
    ['phase', true, /only policy "stream"/],
    ['stream', false, /want --backend cuda/],
  ] as const)('is refused for policy %s, host tier %s', async (policy, hostTier, message) => {
    const prepared = writePrepared(describeModel(optConfig(shape), 'f16'), 5, () => 'mixed');
    try {
      const planning = () => plan(prepared, policy, maxRows, { hostTier, streamLayout: 'strided' });
      expect(planning).toThrow(message);
      expect(planning).toThrow(expect.objectContaining({ code: 'option-without-effect' }));
    } finally {
      await prepared.close();
    }
  });

  const header = ['/usr/local/cuda/include/cuda.h', '/usr/include/cuda.h'].find(existsSync);
  it.skipIf(header === undefined)(
    `its copies have the fields of CUDA_MEMCPY2D${header === undefined ? ' (not run: there is no cuda.h)' : ''}`,
    () => {
      const text = readFileSync(header!, 'utf8');
      const body = /^typedef struct CUDA_MEMCPY2D_st \{([^}]*)\}/m.exec(text)![1]!;
      const fields = [...body.matchAll(/(\w+);/g)].map(([, name]) => name!);
      const words = copyOfRuns({ offset: 3, count: 5, byteLength: 7, pitch: 11 }, 1000n, 2000);
      // Every field takes 8 bytes: the two enumerations are followed by a pointer.
      expect(fields).toHaveLength(words.length);
      const named = Object.fromEntries(fields.map((name, index) => [name, Number(words[index]!)]));
      const kinds = { CU_MEMORYTYPE_HOST: 1, CU_MEMORYTYPE_DEVICE: 2 };
      for (const [name, value] of Object.entries(kinds))
        expect(text).toMatch(new RegExp(`${name}\\s*=\\s*0x0${value}`));
      expect(named).toEqual({
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: kinds.CU_MEMORYTYPE_HOST,
        srcHost: 1003,
        srcDevice: 0,
        srcArray: 0,
        srcPitch: 11,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: kinds.CU_MEMORYTYPE_DEVICE,
        dstHost: 0,
        dstDevice: 2000,
        dstArray: 0,
        dstPitch: 7,
        WidthInBytes: 7,
        Height: 5,
      });
    },
  );
});
