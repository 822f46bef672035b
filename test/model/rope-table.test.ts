import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { RopeScaling } from '../../src/checkpoint/model-config.js';
import { ropeTable } from '../../src/model/rope-table.js';
import { referenceRotation } from './reference-rope.js';
import { llamaConfig } from './tiny-models.js';

const yarn = {
  type: 'yarn',
  factor: 4,
  attentionFactor: null,
  betaFast: 32,
  betaSlow: 1,
  mscale: null,
  mscaleAllDim: null,
  truncate: true,
  originalPositions: 4096,
} as const;

const llama3 = {
  type: 'llama3',
  factor: 8,
  lowFrequencyFactor: 1,
  highFrequencyFactor: 4,
  originalPositions: 8192,
} as const;

const cases: Record<string, { scaling: RopeScaling; theta?: number; rotary?: number }> = {
  default: { scaling: { type: 'default' } },
  'default, theta 500000, partial': { scaling: { type: 'default' }, theta: 500000, rotary: 32 },
  linear: { scaling: { type: 'linear', factor: 2.5 } },
  dynamic: { scaling: { type: 'dynamic', factor: 2, originalPositions: 100 } },
  llama3: { scaling: llama3, theta: 500000 },
  yarn: { scaling: yarn },
  'yarn, not truncated': { scaling: { ...yarn, truncate: false } },
  'yarn, attention factor given': { scaling: { ...yarn, attentionFactor: 0.75 } },
  'yarn, both mscales': { scaling: { ...yarn, mscale: 1, mscaleAllDim: 0.8 } },
  'yarn, mscale of 0 counts as absent': { scaling: { ...yarn, mscale: 0, mscaleAllDim: 0.8 } },
  'yarn, factor 1': { scaling: { ...yarn, factor: 1 } },
  'yarn, short original length': { scaling: { ...yarn, originalPositions: 8 } },
};

describe('ropeTable', () => {
  for (const [name, { scaling, theta = 10000, rotary = 64 }] of Object.entries(cases)) {
    it(`gives the formulas of an independent implementation: ${name}`, () => {
      const config = llamaConfig({ ropeScaling: scaling, ropeTheta: theta, rotary, headDim: 64 });
      const positions = 300;
      const table = ropeTable(config, positions);
      let worst = 0;
      for (let position = 0; position < positions; position++) {
        for (let pair = 0; pair < rotary / 2; pair++) {
          const { cosine, sine } = referenceRotation(config, position, pair);
          const at = (position * rotary) / 2 + pair;
          worst = Math.max(worst, Math.abs(table.cosines[at]! - cosine), Math.abs(table.sines[at]! - sine));
        }
      }
      // Half an ulp of binary32 below 2, and what two binary64 procedures may differ by.
      expect(worst).toBeLessThan(2 ** -24 + 1e-12);
    });
  }

  it('agrees with values worked out by hand', () => {
    // rotary 4: frequencies 1 and 10000^-1/2 = 0.01.
    const plain = ropeTable(llamaConfig({ rotary: 4 }), 3);
    expect([...plain.cosines].map((value) => value.toFixed(7))).toEqual(
      ['1', '1', '0.5403023', '0.9999500', '-0.4161468', '0.9998000'].map((text) => Number(text).toFixed(7)),
    );
    expect([...plain.sines].map((value) => value.toFixed(7))).toEqual(
      ['0', '0', '0.8414710', '0.0099998', '0.9092974', '0.0199987'].map((text) => Number(text).toFixed(7)),
    );
    // 0.1 * ln(4) + 1, at position 0 where the cosine is 1.
    expect(ropeTable(llamaConfig({ ropeScaling: yarn }), 1).cosines[0]).toBe(Math.fround(1.138629436111989));
    // Llama 3.1 divides its longest wavelength by the factor: theta 500000, head of 128, pair 63.
    const scaled = ropeTable(llamaConfig({ ropeScaling: llama3, ropeTheta: 500000, rotary: 128 }), 8001);
    const angle = (8000 * 500000 ** (-126 / 128)) / 8;
    expect(scaled.sines[8000 * 64 + 63]).toBeCloseTo(Math.sin(angle), 7);
  });

  it('gives a position the same row however long the table is', () => {
    const config = llamaConfig({ ropeScaling: { type: 'dynamic', factor: 4, originalPositions: 20 } });
    const short = ropeTable(config, 30);
    const long = ropeTable(config, 90);
    expect(long.cosines.subarray(0, short.cosines.length)).toEqual(short.cosines);
    expect(long.sines.subarray(0, short.sines.length)).toEqual(short.sines);
  });

  it('scales dynamically from the first position beyond the original length', () => {
    const plain = ropeTable(llamaConfig(), 30);
    const dynamic = ropeTable(
      llamaConfig({ ropeScaling: { type: 'dynamic', factor: 4, originalPositions: 20 } }),
      30,
    );
    expect(dynamic.sines.subarray(0, 20 * 6)).toEqual(plain.sines.subarray(0, 20 * 6));
    expect(dynamic.sines[20 * 6 + 1]).not.toBe(plain.sines[20 * 6 + 1]);
  });

  it('refuses dynamic scaling of a single pair, whose exponent has no value', () => {
    const config = llamaConfig({
      rotary: 2,
      ropeScaling: { type: 'dynamic', factor: 2, originalPositions: 4 },
    });
    expect(() => ropeTable(config, 5)).toThrow(expect.objectContaining({ code: 'unusable-rope-scaling' }));
  });

  it('refuses more positions than angles can be reduced for', () => {
    expect(() => ropeTable(llamaConfig({ rotary: 2 }), 2 ** 20 + 1)).toThrow(
      expect.objectContaining({ code: 'too-many-positions' }),
    );
  });

  it('hashes the bytes of cosines and sines', () => {
    const table = ropeTable(llamaConfig(), 9);
    const hash = createHash('sha256').update(table.cosines).update(table.sines);
    expect(table.digest).toBe(hash.digest('hex'));
    expect(ropeTable(llamaConfig({ ropeTheta: 10001 }), 9).digest).not.toBe(table.digest);
  });
});
