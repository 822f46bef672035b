import { describe, expect, test } from 'vitest';
import type { Backend, HostTier } from '../../src/backend/backend.js';
import { openBackend } from '../../src/backend/open.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { measureRates } from '../../src/generate/measure-rates.js';
import { withHostTier } from '../acquire/support/host-tier-oracle.js';
import { describe as describeModel, gatedConfig, optConfig } from '../acquire/support/opt-shape.js';
import { writePrepared } from '../acquire/support/prepared-file.js';
import { openOracle } from '../acquire/support/session.js';

const shape = { hiddenSize: 64, ffnSize: 256, layers: 2, heads: 2, vocabSize: 90, maxPositions: 20 };
const budgetBytes = 3_000_000;

/** Differences of times, which may be lost among others. */
const mayBeNothing = /^(layer|outside|set|moreOp|piece|pieceGap|wake)Seconds$/;

/** Counts what a backend holds, and has every op that it runs. */
function watched(backend: Backend) {
  const seen = { held: 0, peak: 0, kinds: new Set<string>(), frozen: true };
  const { allocate, release, submit } = backend;
  backend.allocate = (request) => {
    seen.held += request.byteLength;
    seen.peak = Math.max(seen.peak, seen.held);
    return allocate.call(backend, request);
  };
  backend.release = (buffer) => {
    seen.held -= buffer.byteLength;
    release.call(backend, buffer);
  };
  backend.submit = (ops) => {
    for (const { op } of ops) seen.kinds.add(op.kind);
    if (ops.length > 1) seen.frozen &&= Object.isFrozen(ops);
    return submit.call(backend, ops);
  };
  return seen;
}

async function measured(backend: Backend, prepared: PreparedModel, quantised: boolean) {
  const seen = watched(backend);
  try {
    const rates = await measureRates(prepared, backend, { budgetBytes, activeShare: 0.05, quantised });
    return { rates, seen };
  } finally {
    await backend.close();
  }
}

describe('rates of a machine', () => {
  test.each([
    ['oracle', openOracle],
    ['wasm', () => openBackend({ name: 'cpu', threads: 1, kernels: 'wasm' })],
  ] as const)('are measured on %s inside half of the budget, and all is given back', async (_, open) => {
    const prepared = writePrepared(describeModel(optConfig(shape), 'f16'), 5, () => 'mixed');
    const { rates, seen } = await measured(await open(), prepared, true);
    await prepared.close();
    const { quantisedBytesPerSecond, overlapShare, directRows, ...others } = rates;
    expect(directRows).toBeUndefined();
    for (const [name, rate] of Object.entries({ ...others, ...quantisedBytesPerSecond })) {
      expect(Number.isFinite(rate) && (mayBeNothing.test(name) ? rate >= 0 : rate > 0), name).toBe(true);
    }
    expect(overlapShare >= 0 && overlapShare <= 1).toBe(true);
    for (const kind of ['norm', 'attention', 'active-inputs', 'linear', 'certify', 'quantised-linear']) {
      expect(seen.kinds).toContain(kind);
    }
    expect(seen.held).toBe(0);
    expect(seen.peak).toBeGreaterThan(budgetBytes / 4); // beyond any cache of it
    expect(seen.peak).toBeLessThanOrEqual(budgetBytes / 2 + 100_000);
  });

  test('are measured where a matrix is larger than what there is room for', async () => {
    const wide = { ...shape, hiddenSize: 256, ffnSize: 512 }; // matrices of 524 KB, pieces of 262 KB
    const few = 2_000_000;
    for (const config of [optConfig(wide), gatedConfig(wide)]) {
      const prepared = writePrepared(describeModel(config, 'f32'), 6, () => 'mixed');
      const backend = await openOracle();
      const seen = watched(backend);
      const rates = await measureRates(prepared, backend, { budgetBytes: few, activeShare: 0.05 });
      await backend.close();
      await prepared.close();
      expect(rates.computeBytesPerSecond).toBeGreaterThan(0);
      expect(rates.activeBytesPerSecond).toBeGreaterThan(0);
      expect(seen.held).toBe(0);
      expect(seen.peak).toBeLessThanOrEqual(few / 2 + 100_000);
    }
  });

  test('of a device are those of its link, and its products those of its own memory', async () => {
    const rowSet = { seconds: 1e-5, bytesPerSecond: 4.5e10 };
    const link = { denseBytesPerSecond: 5e10, rowBytesPerSecond: 4e10, deviceBytesPerSecond: 4e12, rowSet };
    const oracle = await withHostTier();
    const hostTier: HostTier = { ...oracle.hostTier!, measureLink: async () => link };
    const prepared = writePrepared(describeModel(gatedConfig(shape), 'f32'), 5, () => 'mixed');
    const { rates, seen } = await measured(Object.assign(oracle, { hostTier }), prepared, false);
    await prepared.close();
    expect(rates).toMatchObject({ denseBytesPerSecond: 5e10, directRows: rowSet, overlapShare: 1 });
    expect(seen.kinds).toContain('active-outputs');
    expect(rates.computeBytesPerSecond).toBeLessThan(1e12); // the oracle's
    expect(rates.quantisedBytesPerSecond).toBeUndefined();
    expect(seen.held + oracle.mirrored).toBe(0); // which a tier allocates by itself
  });
});
