import { describe, expect, test } from 'vitest';
import type { PlacedMatrix, Placement } from '../../src/acquire/placement.js';
import { type MachineRates, priceToken } from '../../src/acquire/price.js';
import { noRates } from './support/rates.js';

const kilo = 1000;

function matrix(id: string, bytes: number, decode: PlacedMatrix['paths']['decode']): PlacedMatrix {
  const [, layer, role] = /^(?:layers\.(\d+)\.)?(.+)$/.exec(id)!;
  return {
    id,
    role: role as PlacedMatrix['role'],
    layer: layer === undefined ? null : Number(layer),
    bytes,
    paths: { prefill: decode, decode },
    denseReason: null,
    arena: null,
    keptRows: 0,
  };
}

/** A placement with what prices look at. */
function placed(matrices: readonly PlacedMatrix[], more: Partial<Placement> = {}): Placement {
  return {
    policy: 'phase',
    matrices,
    tables: [],
    staging: null,
    forecast: null,
    moved: { activeShare: 0.1, expectedPacketBytes: 0, denseDecodeBytes: 0, embeddingBytes: 0 },
    ...more,
  } as unknown as Placement;
}

const streams = (slots: number, slotBytes: number) => ({ staging: { slots, slotBytes } });

/** Milliseconds, rates being bytes a second. */
function total(placement: Placement, rates: Partial<MachineRates>, hostTier = false): number {
  return priceToken(placement, { ...noRates, ...rates }, hostTier).totalMs;
}

describe('the price of a token', () => {
  test('is what layers take beside their products, products by their bytes, and the way to the host', () => {
    const held = placed([
      matrix('layers.0.query', 2000, 'resident'),
      matrix('layers.0.second', 5000, 'resident-sparse'),
      matrix('layers.1.query', 2000, 'resident'),
      matrix('layers.1.second', 5000, 'q8'),
      matrix('head', 4000, 'resident'),
    ]);
    const rates = {
      computeBytesPerSecond: 1000 * kilo,
      layerSeconds: 0.001,
      outsideSeconds: 0.002,
      setSeconds: 0.003,
      activeBytesPerSecond: 100 * kilo,
      quantisedBytesPerSecond: { q8: 500 * kilo, q4: 1 },
      roundTripSeconds: 0.004,
      logitsSeconds: 0.005,
      opSeconds: 1, // of passes that are not recorded
    };
    // layers 2, products 2 + 2 + 4, set 3 + 5, quantised 10, outside 2, host 9
    expect(total(held, rates)).toBeCloseTo(39, 9);
    const certificate = { format: 'int8', directions: 0, bytes: 3000 } as const;
    const certified = placed([{ ...matrix('layers.0.first', 2000, 'resident-sparse'), certificate }]);
    expect(total(certified, { certifyBytesPerSecond: 1000 * kilo })).toBeCloseTo(3, 9);
  });

  test('of streamed weights is that of whichever takes longer: link, host, or what is computed', () => {
    const matrices = [matrix('layers.0.first', 8000, 'streamed'), matrix('layers.0.query', 2000, 'resident')];
    const four = placed(matrices, streams(4, 1000)); // 8 pieces of 1 ms
    const link = { denseBytesPerSecond: 1000 * kilo, overlapShare: 1 };
    expect(total(four, link)).toBeCloseTo(8, 9);
    expect(total(four, { ...link, pieceGapSeconds: 0.0005 })).toBeCloseTo(12, 9);
    expect(total(four, { ...link, pieceSeconds: 0.002 })).toBeCloseTo(16, 9);
    expect(total(four, { ...link, computeBytesPerSecond: 400 * kilo })).toBeCloseTo(25, 9);
    // What a processor does not do beside reading comes on top.
    const both = { ...link, computeBytesPerSecond: 2000 * kilo };
    expect(total(four, { ...both, overlapShare: 0 })).toBeCloseTo(8 + 5, 9);
    expect(total(four, { ...both, overlapShare: 1 })).toBeLessThan(8 + 2);
    // A slot is free when its op has run and the host has seen it: one slot hides nothing.
    const one = placed(matrices, streams(1, 1000));
    expect(total(one, { ...link, wakeSeconds: 0.0005, pieceSeconds: 0.0001 })).toBeCloseTo(8 * 2.1, 6);
  });

  test('reads ahead as far as there are slots, and no further', () => {
    // 10 ms of resident layers in front of 10 ms on the link, of which two slots hold 2.
    const matrices = [
      matrix('layers.0.first', 10_000, 'resident'),
      matrix('layers.1.first', 10_000, 'streamed'),
    ];
    const rates = {
      denseBytesPerSecond: 1000 * kilo,
      computeBytesPerSecond: 1000 * kilo,
      overlapShare: 1,
    };
    const ms = total(placed(matrices, streams(2, 1000)), rates);
    expect(ms).toBeGreaterThan(18); // not 10, which is what the longer of both takes
    expect(ms).toBeLessThan(21);
  });

  test('of rows that ops read from host memory has no host in it; of others the host reads the set', () => {
    const moved = { activeShare: 0.1, expectedPacketBytes: 1000, denseDecodeBytes: 0, embeddingBytes: 0 };
    const matrices = [matrix('layers.0.second', 10_000, 'packets')];
    const by = placed(matrices, { moved } as Partial<Placement>);
    const rates = {
      directRows: { seconds: 0.001, bytesPerSecond: 1000 * kilo },
      rowBytesPerSecond: 100 * kilo,
      rowStartSeconds: 0.002,
      roundTripSeconds: 0.003,
      readSeconds: 0.001,
      setSeconds: 0.0005,
      activeBytesPerSecond: 2000 * kilo,
      extentBytesPerSecond: 200 * kilo,
    };
    expect(total(by, rates, true)).toBeCloseTo(1 + 1 + 3, 9);
    const fed = 3 + 1 + 2 + 10 + 0.5 + 0.5 + 3;
    expect(total(by, rates, false)).toBeCloseTo(fed, 9);
    const extents = placed([matrix('layers.0.second', 10_000, 'extents')], { moved } as Partial<Placement>);
    expect(total(extents, rates, true)).toBeCloseTo(fed - 5, 9);
    const tables = [{ id: 'token-embedding', path: 'rows', bytes: 0, rowBytes: 100 }] as const;
    const embedded = { ...moved, embeddingBytes: 100 };
    expect(
      total(placed(matrices, { moved: embedded, tables } as unknown as Partial<Placement>), rates),
    ).toBeCloseTo(fed + 2 + 1, 9);
  });

  test.each([true, false])(
    'early guesses come beside their layer, late ones do not; on a device: %s',
    (tier) => {
      const moved = { activeShare: 0.1, expectedPacketBytes: 1500, denseDecodeBytes: 0, embeddingBytes: 0 };
      const matrices = [
        matrix('layers.0.first', 4000, 'resident'),
        matrix('layers.0.second', 10_000, 'forecast'),
      ];
      const rates = {
        computeBytesPerSecond: 1000 * kilo,
        directRows: { seconds: 0, bytesPerSecond: 200 * kilo },
        rowBytesPerSecond: 200 * kilo,
        overlapShare: 1,
      };
      const at = (forecast: 'early' | 'late', guesser?: string) =>
        total(
          placed(matrices, { moved, forecast, ...(guesser && { guesser }) } as Partial<Placement>),
          rates,
          tier,
        );
      // 4 ms of products, guesses of 5 ms, 2.5 ms for what they had not
      expect(at('late')).toBeCloseTo(4 + 5 + 2.5, 9);
      expect(at('early')).toBeCloseTo(5 + 2.5, 9);
      expect(at('early', 'learned')).toBeCloseTo(5 + 2.5, 9);
    },
  );
});
