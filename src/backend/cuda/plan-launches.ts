import type { Op, PlacedOp } from '../ops.js';
import { type Fused, fusableActivation, linearGroup, readsWholeSet } from './fuse.js';
import { at, type Launch, type LaunchFacts } from './launch.js';
import { planAttention } from './plan-attention.js';
import {
  type CertifiedRows,
  certifiedRows,
  planCertifiedRows,
  planCertify,
  planFlags,
  planRoundInput,
  roundsNorm,
} from './plan-certify.js';
import { planHeldInputs, planHeldOutputs, planLookup, planRetainRows } from './plan-held-rows.js';
import { planLinear } from './plan-linear.js';
import { planLinearRows } from './plan-linear-rows.js';
import { nativeProduct, planNative } from './plan-native.js';
import { planQuantised } from './plan-quantised-rows.js';
import {
  planActivate,
  planAdd,
  planGatedProduct,
  planGather,
  planNorm,
  planRope,
  planStoreKv,
} from './plan-rows.js';
import { planActiveDirect, planActiveInputs, planActiveOutputs, planCompact } from './plan-sparse.js';

/**
 * The launches of a submission, in order. Pure. Neighbours that only one kernel needs are one launch (`fuse.ts`); every
 * op's result is written all the same.
 */
export function planLaunches(ops: readonly PlacedOp[], facts: LaunchFacts): Launch[] {
  const launches: Launch[] = [];
  for (let index = 0; index < ops.length; ) {
    index = planNext(ops, index, facts, launches);
  }
  if (facts.overlaps) return launches;
  return launches.map((one) => (one.overlapsPrevious ? { ...one, overlapsPrevious: false } : one));
}

/** Plans what begins at `index`; returns the index behind it. */
function planNext(ops: readonly PlacedOp[], index: number, facts: LaunchFacts, launches: Launch[]): number {
  const { op } = ops[index]!;
  const behind = ops[index + 1]?.op;
  const native = nativeProduct(op);
  if (native !== null) {
    const activation =
      native.kind === 'linear' && behind?.kind === 'activate' ? fusableActivation(native, behind) : null;
    const planned = planNative(native, index, activation, facts);
    if (planned !== null) launches.push(planned);
    return activation === null ? index + 1 : index + 2;
  }
  if (op.kind === 'norm' && behind?.kind === 'round-input' && roundsNorm(op, behind, facts)) {
    launches.push(...planRoundInput(behind, index + 1, op, facts));
    return index + 2;
  }
  if (op.kind === 'certify') {
    const group = certifiedRows(ops, index, facts);
    if (group !== null) return planGroupOfRows(ops, group, facts, launches);
  }
  if (op.kind === 'quantised-linear') {
    const { value, next } = planQuantised(ops, index, facts);
    launches.push(...value);
    return next;
  }
  if (op.kind === 'norm' || op.kind === 'linear') {
    const group = linearGroup(ops, index);
    const whole = group === null ? null : planLinearRows(group.value, facts);
    if (group !== null && whole !== null) {
      launches.push(whole);
      return group.next;
    }
  }
  if (op.kind === 'linear') {
    if (op.rows === 0 || op.outputs === 0) return index + 1;
    const alone = { products: [op], opIndex: index, norm: null, activation: null, store: null };
    if (op.rows <= 8 && op.matrix.layout === 'input-major') {
      launches.push(planLinearRows(alone, facts)!);
      return index + 1;
    }
    const activation = behind?.kind === 'activate' ? fusableActivation(op, behind) : null;
    launches.push(planLinear({ op, opIndex: index, activation }, facts));
    return activation === null ? index + 1 : index + 2;
  }
  const direct = directAt(ops, index);
  if (direct !== null) {
    launches.push(planActiveDirect(direct.compact, direct.product, index + 1, facts));
    return index + 2;
  }
  launches.push(...planOne(op, index, facts));
  const lookup = planLookup(ops, index, facts);
  if (lookup !== null) {
    launches.push(...lookup.value);
    return lookup.next;
  }
  return index + 1;
}

/** An active set and the product over it that are one launch. */
function directAt(ops: readonly PlacedOp[], index: number) {
  const compact = ops[index]?.op;
  const product = ops[index + 1]?.op;
  if (compact?.kind !== 'compact' || product?.kind !== 'active-inputs') return null;
  return nativeProduct(product) === null && readsWholeSet(compact, product) ? { compact, product } : null;
}

/** Certificates with their rows. The set of these rows, which only the host asks for, is made beside the next product. */
function planGroupOfRows(
  ops: readonly PlacedOp[],
  { value, next }: Fused<CertifiedRows>,
  facts: LaunchFacts,
  launches: Launch[],
): number {
  launches.push(planCertifiedRows(value, facts));
  const direct = directAt(ops, next);
  if (direct === null) {
    launches.push(planFlags(value));
    return next;
  }
  // Where both sets are the same bytes the second one is what stays.
  const flagged = at(direct.compact.active) === at(value.compact.active) ? null : value.compact;
  launches.push(planActiveDirect(direct.compact, direct.product, next + 1, facts, flagged));
  return next + 2;
}

function planOne(
  op: Exclude<Op, { kind: 'linear' | 'quantised-linear' }>,
  index: number,
  facts: LaunchFacts,
): Launch[] {
  switch (op.kind) {
    case 'gather':
      return planGather(op, index, facts);
    case 'compact':
      return planCompact(op, index);
    case 'active-inputs':
      return planActiveInputs(op, index, facts);
    case 'active-outputs':
      return planActiveOutputs(op, index, facts);
    case 'activate':
      return planActivate(op, index);
    case 'gated-product':
      return planGatedProduct(op, index);
    case 'add':
      return planAdd(op, index);
    case 'retain-rows':
      return [planRetainRows(null, op, index)];
    case 'held-inputs':
      return planHeldInputs(op, index, facts);
    case 'held-outputs':
      return planHeldOutputs(op, index, facts);
    case 'norm':
      return planNorm(op, index);
    case 'rope':
      return planRope(op, index);
    case 'store-kv':
      return planStoreKv(op, index, facts);
    case 'attention':
      return planAttention(op, index, facts);
    case 'round-input':
      return planRoundInput(op, index, null, facts);
    case 'certify':
      return planCertify(op, index, facts);
  }
}
