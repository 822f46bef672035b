import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import {
  largestCode,
  leastCode,
  lowBitFormats,
  lowBitNames,
  RowQuantiser,
  roundedUp,
} from '../../src/checkpoint/low-bit.js';
import { LowBitCopyWriter } from '../../src/checkpoint/low-bit-copy.js';
import { lowBitLayout, packCodes, unpackCodes } from '../../src/checkpoint/low-bit-layout.js';
import { lowBitDirectory, lowBitPlan, openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { prepare } from '../../src/checkpoint/open-or-prepare.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { CaseRandom } from '../backend/contract/case-random.js';

const seed = 20261202;

describe(`low-bit rows (seed ${seed})`, () => {
  it.each(lowBitNames)('%s: codes in range, errors of at most a step, zeros kept', (name) => {
    const format = lowBitFormats[name];
    for (let index = 0; index < 60; index += 1) {
      const random = new CaseRandom(seed, index);
      const inputs = random.pick([1, 31, 32, 33, 100, 128]);
      const flavor = random.pick(['plain', 'wide', 'tiny', 'edges', 'sparse', 'zero'] as const);
      const weights = random.floats(inputs, flavor);
      const { scale, codes, groupScales } = new RowQuantiser(inputs, format).quantise(weights);
      expect(Math.fround(scale)).toBe(scale);
      for (let i = 0; i < codes.length; i += 1) {
        const code = codes[i]!;
        expect(code).toBeGreaterThanOrEqual(leastCode(format.bits));
        expect(code).toBeLessThanOrEqual(largestCode(format.bits));
        if (i >= inputs || weights[i] === 0) expect(code === 0).toBe(true);
        if (i >= inputs || format.bits < 8) continue;
        const step = scale * groupScales[Math.floor(i / 32)]!;
        expect(Math.abs(weights[i]! - step * code)).toBeLessThanOrEqual(step * 0.5000001);
      }
    }
  });

  it.each([4, 5, 6] as const)('%d bits are packed and read back', (bits) => {
    const random = new CaseRandom(seed, bits);
    const codes = new Int8Array(32).map(() => random.below(2 ** bits) - 2 ** (bits - 1));
    const low = new Uint8Array(16);
    const high = new Uint8Array((bits - 4) * 4);
    packCodes(bits, codes, low, high);
    const found = new Int8Array(32);
    unpackCodes(bits, low, high, found);
    expect(found).toEqual(codes);
  });

  it('stores norms that are no smaller than the true ones', () => {
    for (let index = 0; index < 40; index += 1) {
      const random = new CaseRandom(seed + 1, index);
      const inputs = random.pick([1, 33, 128, 500]);
      const row = random.floats(inputs, random.pick(['plain', 'wide', 'tiny', 'edges']));
      const writer = new LowBitCopyWriter(inputs, 1, lowBitFormats.int6g32, null);
      writer.add(0, row);
      const { records } = lowBitLayout(lowBitFormats.int6g32, inputs, 1, 0);
      const [scale, weights, residuals] = new Float32Array(writer.bytes.buffer, records.byteOffset, 3);
      const { codes, groupScales } = new RowQuantiser(inputs, lowBitFormats.int6g32).quantise(row);
      const squared = (values: Iterable<number>) => {
        // Exact: whole multiples of 2^-200, far below any product of two of these numbers.
        let sum = 0n;
        for (const value of values) {
          const fixed = toFixed(value);
          sum += fixed * fixed;
        }
        return sum;
      };
      const exactRest = Array.from(
        { length: inputs },
        (_, i) => toFixed(row[i]!) - toFixed(scale!) * BigInt(groupScales[Math.floor(i / 32)]! * codes[i]!),
      );
      expect(toFixed(weights!) ** 2n >= squared(row)).toBe(true);
      expect(toFixed(residuals!) ** 2n >= exactRest.reduce((sum, value) => sum + value * value, 0n)).toBe(
        true,
      );
    }
  });

  it('rounds up', () => {
    expect(roundedUp(0)).toBe(0);
    expect(roundedUp(1)).toBe(1);
    expect(roundedUp(1 + 2 ** -40)).toBe(1 + 2 ** -23);
    expect(roundedUp(2 ** -160)).toBe(2 ** -149);
    expect(roundedUp(1e39)).toBe(Infinity);
  });
});

/** A binary32 number in units of 2^-200, which holds every one. */
function toFixed(value: number): bigint {
  if (value === Infinity) return 2n ** 400n;
  const scaled = value * 2 ** 149; // whole: binary32 numbers are multiples of 2^-149
  return BigInt(scaled) << 51n;
}

describe('the certified part of a prepared form', () => {
  let folder: string;
  let prepared: PreparedModel;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'waybill-low-bit-'));
    const checkpoint = await openCheckpoint('models/opt-books-draft');
    const opened = await prepare(checkpoint, {
      directory: join(folder, 'prepared'),
      environment: { HF_HOME: join(folder, 'home') },
    });
    prepared = opened.prepared;
    await checkpoint.close();
  });
  afterEach(async () => {
    await prepared.close();
    rmSync(folder, { recursive: true });
  });

  const data = (name: string) => join(prepared.directory, lowBitDirectory, name, 'data.bin');

  it('is written once, and found afterwards', async () => {
    const plan = await lowBitPlan(prepared, 'int8');
    const first = await openLowBit(prepared, plan);
    expect(first.writtenNow).toBe(true);
    await first.close();
    const again = await openLowBit(prepared, plan, { verify: true });
    expect([again.writtenNow, again.manifestDigest]).toEqual([false, first.manifestDigest]);
    for (const { id, layout } of again.description.matrices)
      expect(layout === 'output-major').toBe(again.copy(id) !== null);
    await again.close();
  });

  it('notices damage', async () => {
    const plan = await lowBitPlan(prepared, 'int4g32');
    await (await openLowBit(prepared, plan)).close();
    const bytes = readFileSync(data('int4g32'));
    bytes[100]! ^= 1;
    writeFileSync(data('int4g32'), bytes);
    await (await openLowBit(prepared, plan)).close(); // not looked at without verify
    await expect(openLowBit(prepared, plan, { verify: true })).rejects.toMatchObject({
      code: 'tensor-digest',
    });
    truncateSync(data('int4g32'), 1000);
    await expect(openLowBit(prepared, plan)).rejects.toMatchObject({ code: 'weights-size' });
    const manifest = join(prepared.directory, lowBitDirectory, 'rows', 'manifest.json');
    writeFileSync(manifest, readFileSync(manifest, 'utf8').replace('"version":1', '"version":2'));
    await expect(openLowBit(prepared, plan)).rejects.toMatchObject({ code: 'manifest-digest' });
  });

  it('is made anew for another prepared form', async () => {
    const plan = await lowBitPlan(prepared, 'int8');
    await (await openLowBit(prepared, plan)).close();
    const other = { ...prepared, manifestDigest: 'f'.repeat(64) };
    const opened = await openLowBit(other, plan);
    expect(opened.writtenNow).toBe(true);
    await opened.close();
  });

  it('leaves nothing behind where it is stopped', async () => {
    const plan = await lowBitPlan(prepared, 'int5g32');
    await (await openLowBit(prepared, await lowBitPlan(prepared, 'int8'))).close();
    const stop = new AbortController();
    const onProgress = () => stop.abort();
    const opening = openLowBit(prepared, plan, { signal: stop.signal, onProgress });
    await expect(opening).rejects.toMatchObject({ code: 'interrupted' });
    expect(readdirSync(join(prepared.directory, lowBitDirectory)).sort()).toEqual(['int8', 'rows']);
  });

  it('refuses a name that nothing stands behind', async () => {
    await expect(lowBitPlan(prepared, 'profiled')).rejects.toMatchObject({ code: 'low-bit-missing' });
  });
});
