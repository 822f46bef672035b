import type { ActivationProfile } from '../../../src/acquire/activation-profile.js';
import { openWeightSource } from '../../../src/acquire/open.js';
import type { Placement } from '../../../src/acquire/placement.js';
import { type PlacementRequest, planPlacement } from '../../../src/acquire/plan.js';
import type { PolicyName } from '../../../src/acquire/policy.js';
import type { Backend } from '../../../src/backend/backend.js';
import { openBackend } from '../../../src/backend/open.js';
import { type LowBitModel, openLowBit } from '../../../src/checkpoint/low-bit-model.js';
import { defaultLowBit, uniformLowBit } from '../../../src/checkpoint/low-bit-plan.js';
import type { PreparedModel } from '../../../src/checkpoint/prepared-model.js';
import { moveCauses } from '../../../src/memory/causes.js';
import { Ledger } from '../../../src/memory/ledger.js';
import { MoveTrace, type TraceRecord } from '../../../src/memory/trace.js';
import { type DriverHooks, driver } from './driver.js';

/** One forward pass of a script. */
export interface ScriptPass {
  readonly kind: 'prefill' | 'decode';
  readonly ids: readonly number[];
  readonly wantsHead: boolean;
}

export function openOracle(): Promise<Backend> {
  return openBackend({ name: 'oracle', threads: 1, kernels: 'auto' });
}

export function plan(
  prepared: PreparedModel,
  policy: PolicyName,
  maxRows: number,
  extra: Partial<PlacementRequest> = {},
): Placement {
  return planPlacement({
    description: prepared.description,
    tensor: (id) => prepared.tensor(id),
    policy,
    budgetBytes: Infinity,
    fixed: [],
    maxRows,
    ...extra,
  });
}

/** A source opened over a placement, with its ledger and the trace of its moves. */
export async function openSession(
  backend: Backend,
  prepared: PreparedModel,
  placement: Placement,
  profile?: ActivationProfile,
  hostBudgetBytes = Infinity,
  lowBit?: LowBitModel,
) {
  const records: TraceRecord[] = [];
  const ledger = new Ledger(new MoveTrace((record) => records.push(record)).record);
  const opened = lowBit ?? (await lowBitFor(prepared, placement));
  const source = await openWeightSource({
    placement,
    backend,
    prepared,
    ledger,
    hostBudgetBytes,
    ...(profile === undefined ? {} : { profile }),
    ...(opened === null ? {} : { lowBit: opened }),
  });
  const close = source.close.bind(source);
  source.close = async () => {
    await close();
    await opened?.close();
  };
  const { description } = prepared;
  return {
    ledger,
    records,
    source,
    drive: (hooks: DriverHooks = {}) =>
      driver({ description, backend, source, maxRows: placement.maxRows, hooks }),
  };
}

/** The default low-bit copies, for a placement that certifies. */
async function lowBitFor(prepared: PreparedModel, { policy }: Placement): Promise<LowBitModel | null> {
  if (policy !== 'certified') return null;
  const finite = (id: string) => prepared.tensor(id).finite;
  return openLowBit(prepared, uniformLowBit(prepared.description, finite, defaultLowBit));
}

/** Sums of a trace, in the form of the ledger's counters. */
export function traceSums(records: readonly TraceRecord[]) {
  const sum = (key: 'bytes' | 'rows') =>
    Object.fromEntries(
      moveCauses.map((cause) => [
        cause,
        records.filter((record) => record.cause === cause).reduce((total, record) => total + record[key], 0),
      ]),
    );
  return { moved: sum('bytes'), movedRows: sum('rows') };
}
