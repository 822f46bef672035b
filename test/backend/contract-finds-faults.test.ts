import { afterAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { outputOf } from '../../src/backend/op-output.js';
import type { Op, PlacedOp } from '../../src/backend/ops.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { difference } from './contract/workbench.js';
import { contractGroups, runCase } from './contract.js';

type Submit = (oracle: Backend, ops: readonly PlacedOp[]) => Promise<void>;

/** The oracle with another `submit`. */
function faulty(submit: Submit): Backend {
  return new Proxy(openOracle(), {
    get(oracle, name) {
      if (name === 'submit') return (ops: readonly PlacedOp[]) => submit(oracle, ops);
      const member: unknown = Reflect.get(oracle, name, oracle);
      return typeof member === 'function' ? member.bind(oracle) : member;
    },
  });
}

/** `spoil` runs after each op. */
function spoiled(spoil: (oracle: Backend, op: Op) => Promise<void>): Backend {
  return faulty(async (oracle, ops) => {
    for (const placed of ops) {
      await oracle.submit([placed]);
      await spoil(oracle, placed.op);
    }
  });
}

/** Runs other ops than it was given. */
function altered(change: (op: Op) => Op): Backend {
  return faulty((oracle, ops) => oracle.submit(ops.map(({ op, label }) => ({ op: change(op), label }))));
}

describe('the contract suite finds a backend that', () => {
  const oracle = openOracle();
  const opened: Backend[] = [oracle];
  afterAll(async () => {
    await Promise.all(opened.map((backend) => backend.close()));
  });

  /** How many of a group's first cases differ. */
  const found = async (backend: Backend, groupName: string): Promise<number> => {
    opened.push(backend);
    const group = contractGroups().find(({ name }) => name === groupName)!;
    let count = 0;
    for (const [index, one] of group.cases.slice(0, 30).entries()) {
      const expected = await runCase(oracle, one, index);
      if (difference(expected, await runCase(backend, one, index)) !== null) count++;
    }
    return count;
  };

  it.each([
    'linear, f16, input-major',
    'active-inputs, bf16',
    'activate, relu',
    'rope',
    'norm',
    'gather, f32',
  ])('flips the last bit of one result (%s)', async (groupName) => {
    const backend = spoiled(async (target, op) => {
      const out = outputOf(op);
      if (out === null || out.byteLength === 0) return;
      const bytes = await target.read(out);
      bytes[out.byteLength - 4]! ^= 1;
      target.write(out, bytes);
    });
    expect(await found(backend, groupName)).toBeGreaterThan(15);
  });

  it('writes past the end of a result', async () => {
    const backend = spoiled(async (target, op) => {
      const out = outputOf(op)!;
      const after = { ...out, byteOffset: out.byteOffset + out.byteLength, byteLength: 4 };
      target.write(after, new Uint8Array(4));
    });
    expect(await found(backend, 'linear, f32, output-major')).toBe(30);
  });

  it('drops the residual, or forgets that an op continues', async () => {
    const withoutResidual = altered((op) => (op.kind === 'linear' ? { ...op, residual: null } : op));
    expect(await found(withoutResidual, 'linear, f32, input-major')).toBeGreaterThan(5);
    const anew = altered((op) => (op.kind === 'linear' ? { ...op, continues: false } : op));
    expect(await found(anew, 'linear, f32, output-major')).toBeGreaterThan(0);
  });

  it('scores with a scale that is off in the last places', async () => {
    const offScale = altered((op) =>
      op.kind === 'attention' ? { ...op, scale: op.scale * (1 + 2 ** -22) } : op,
    );
    expect(await found(offScale, 'store-kv and attention, f16 KV')).toBeGreaterThan(20);
  });
});
