import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openWeightSource } from '../../src/acquire/open.js';
import type { PolicyName } from '../../src/acquire/policy.js';
import type { Backend } from '../../src/backend/backend.js';
import { type LowBitModel, openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { uniformLowBit } from '../../src/checkpoint/low-bit-plan.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { Ledger } from '../../src/memory/ledger.js';
import { describe as describeModel, gatedConfig, optConfig } from './support/opt-shape.js';
import { writePrepared } from './support/prepared-file.js';
import { openOracle, openSession, plan } from './support/session.js';

const shape = { hiddenSize: 48, ffnSize: 256, layers: 2, heads: 2, vocabSize: 40, maxPositions: 20 };

describe.each([
  ['plain', describeModel(optConfig(shape), 'f16')],
  ['gated', describeModel(gatedConfig(shape), 'f16')],
] as const)('opening beside low-bit copies, %s FFN', (_, description) => {
  let backend: Backend;
  let prepared: PreparedModel;
  let lowBit: LowBitModel;
  beforeAll(async () => {
    backend = await openOracle();
    prepared = writePrepared(description, 3, () => 'mixed');
    lowBit = await openLowBit(
      prepared,
      uniformLowBit(description, () => true, 'int6g32'),
    );
  });
  afterAll(async () => {
    await lowBit.close();
    await prepared.close();
    await backend.close();
  });

  test.each([
    ['none are open', undefined, /Cannot certify "layers\.0\.(first|gate)": no low-bit copies are open/],
    ['they are of another format', 'int6g32', /hold one of format "int6g32" with 0 directions, .* "int8"/],
  ] as const)('a placement that certifies is refused where %s', async (_case, name, message) => {
    // planned with no plan of copies given: the default's
    const { minimumBytes } = plan(prepared, 'certified', 4);
    for (const budgetBytes of [minimumBytes, Infinity]) {
      const ledger = new Ledger();
      const placement = plan(prepared, 'certified', 4, { budgetBytes });
      const opening = openWeightSource({
        placement,
        backend,
        prepared,
        ledger,
        ...(name === undefined ? {} : { lowBit }),
      });
      await expect(opening).rejects.toMatchObject({ name: 'DefectError', code: 'defect' });
      await expect(opening).rejects.toThrow(message);
      expect(ledger.totalHeld).toBe(0);
    }
  });

  test.each(['stream', 'packets'] as const)(
    '%s gives the bytes of the resident model whatever copies are open',
    async (policy) => {
      const run = async (chosen: PolicyName, room: number | null, copies?: LowBitModel) => {
        const { minimumBytes } = plan(prepared, chosen, 4);
        const budgetBytes = room === null ? Infinity : minimumBytes + room;
        const placement = plan(prepared, chosen, 4, { budgetBytes });
        const session = await openSession(backend, prepared, placement, undefined, Infinity, copies);
        const drive = session.drive();
        const bytes = Buffer.concat([
          await drive.pass('prefill', [3, 1, 4]),
          await drive.pass('decode', [1]),
        ]);
        drive.close();
        const { source } = session;
        await source.close();
        return bytes;
      };
      const other = await openLowBit(prepared, lowBit.plan); // `run` closes what it is given
      expect(await run(policy, 0, other)).toEqual(await run('resident', null));
    },
  );
});
