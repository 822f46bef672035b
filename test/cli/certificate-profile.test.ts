import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { lowBitPlan } from '../../src/checkpoint/low-bit-model.js';
import {
  certificateRequest,
  certificateText,
  certificateTotals,
  profileCertificates,
} from '../../src/cli/certificate-profile.js';
import { feedText } from '../../src/generate/feed-text.js';
import { openModel } from '../../src/generate/session.js';

const folder = mkdtempSync(join(tmpdir(), 'waybill-certify-'));
afterAll(() => rmSync(folder, { recursive: true }));

const common = {
  model: 'models/opt-books-draft',
  prepared: join(folder, 'prepared'),
  contextPositions: 64,
  threads: 2,
};
const text =
  'The harbour lay still, and nobody had seen the ship since the morning. The wind blew from the sea, and the rain came down.';

async function digests(lowBit: string | null) {
  const session = await openModel({
    ...common,
    policy: lowBit === null ? 'resident' : 'certified',
    lowBit,
  });
  try {
    const generation = session.generate(['The ship left'], { maxNewTokens: 4, ignoreEos: true });
    for await (const _ of generation);
    return generation.outcome.requests[0]!.logitsDigests;
  } finally {
    await session.close();
  }
}

describe('profile --certify', () => {
  it('counts, checks, and writes copies that runs can use', async () => {
    const session = await openModel({ ...common, policy: 'resident', logitsRows: 8 });
    const { prepared } = session.plan;
    const request = certificateRequest('int8,int4g32,int8', 16)!;
    expect(request).toEqual({ formats: ['int8', 'int4g32'], directions: 16 });
    try {
      const profile = await profileCertificates(
        session,
        session.encode(text),
        request,
        (part) => feedText(session, part, { prefixId: null }),
        {},
      );
      const { layers } = prepared.description.config;
      expect(profile.counts).toHaveLength(4 * layers);
      expect(profile.chosen.size).toBe(layers);
      const totals = certificateTotals(profile.counts);
      expect(totals.map(({ copies }) => copies)).toEqual(['int8', 'int4g32', 'int8-d16', 'int4g32-d16']);
      for (const { wronglyCertified, activeShare, uncertainShare } of totals) {
        expect(wronglyCertified).toBe(0);
        expect(uncertainShare).toBeGreaterThan(activeShare);
        expect(uncertainShare).toBeLessThan(1);
      }
      const [, four, , directed] = totals;
      expect(directed!.uncertainShare).toBeLessThan(four!.uncertainShare);
      expect(certificateText(profile)).toContain('int4g32-d16');
      const { choices } = await lowBitPlan(prepared, 'profiled');
      expect(choices.size).toBe(layers);
    } finally {
      await session.close();
    }
    const expected = await digests(null);
    expect(await digests('profiled')).toEqual(expected);
    expect(await digests('int4g32-d16')).toEqual(expected);
  });

  it('refuses formats and directions that there are none of', () => {
    expect(certificateRequest(undefined, undefined)).toBe(null);
    expect(() => certificateRequest('int7', undefined)).toThrow('Cannot use the low-bit format "int7"');
    expect(() => certificateRequest('int8', 20)).toThrow('want a multiple of 16, at most 64');
    expect(() => certificateRequest(undefined, 16)).toThrow('Cannot use --directions without --certify');
  });
});
