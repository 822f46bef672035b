import { lowBitOf, type PlacementRequest } from '../acquire/plan.js';
import { policies } from '../acquire/policies.js';
import type { Backend } from '../backend/backend.js';
import { nativeLowBitRows } from '../backend/cpu/low-bit-rows.js';
import { nativeTransposer } from '../backend/cpu/native-transpose.js';
import { UsageError } from '../base/errors.js';
import { type LowBitModel, lowBitPlan, openLowBit } from '../checkpoint/low-bit-model.js';
import { defaultLowBit, type LowBitPlan } from '../checkpoint/low-bit-plan.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import type { SessionHooks, SessionOptions } from './session-options.js';

/**
 * The low-bit copies that a session certifies with, as the planner needs them.
 * @throws UsageError `no-certificates` where policy `certified` has nothing to certify with; `low-bit-missing`
 */
export async function planCertificates(
  { policy, numerics, lowBit }: SessionOptions,
  prepared: PreparedModel,
  { info }: Backend,
): Promise<LowBitPlan> {
  if (policy === 'certified' && numerics === 'native') {
    throw new UsageError(
      'no-certificates',
      'Cannot use policy "certified" here: certificates hold for portable numerics alone',
      { backend: info.name, numerics },
    );
  }
  return lowBitPlan(prepared, lowBit ?? defaultLowBit);
}

/** The certified part of the prepared form, for a policy that certifies; written where that was not done. */
export async function openCertified(
  prepared: PreparedModel,
  request: PlacementRequest,
  hooks: SessionHooks,
): Promise<LowBitModel | null> {
  if (policies[request.policy].rows.decode !== 'certified') return null;
  return openLowBit(prepared, lowBitOf(request), {
    signal: hooks.signal,
    makeRows: nativeLowBitRows(),
    readTransposed: nativeTransposer(),
    onProgress: (done, total) => hooks.onProgress?.('preparing low-bit copies', done, total),
    onWait: ({ pid }) => hooks.onNote?.(`waiting for process ${pid}, which prepares the same low-bit copies`),
  });
}
