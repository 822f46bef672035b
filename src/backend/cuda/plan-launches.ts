import type { GuessRowsOp, Op, PlacedOp } from '../ops.js';
import { fusableActivation, linearGroup, readsWholeSet } from './fuse.js';
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
import { normedCertificate, planNormedCertificate } from './plan-certify-normed.js';
import {
  awaitsGuess,
  planGuessRows,
  planHeldInputs,
  planHeldOutputs,
  planLookup,
  planRetainRows,
} from './plan-held-rows.js';
import { planLinear } from './plan-linear.js';
import { planLinearRows } from './plan-linear-rows.js';
import { nativeProduct, planNative } from './plan-native.js';
import { planNativeStages } from './plan-native-stages.js';
import { planQuantised } from './plan-quantised-rows.js';
import {
  planActivate,
  planAdd,
  planGatedProduct,
  planGather,
  planGreedy,
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
  let guesses: GuessRowsOp[] = []; // that run beside, as far as is known
  for (let index = 0; index < ops.length; ) {
    const first = launches.length;
    const next = planNext(ops, index, facts, launches);
    const planned = ops.slice(index, next).map(({ op }) => op);
    const joins = planned.some((op) => guesses.some((guess) => awaitsGuess(op, guess)));
    const behind = launches[first];
    if (joins && behind !== undefined) {
      launches[first] = { ...behind, joins: true, overlapsPrevious: false };
      guesses = [];
    }
    guesses.push(...planned.filter((op) => op.kind === 'guess-rows'));
    index = next;
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
    const staged = planNativeStages(ops, index, facts);
    if (staged !== null) {
      launches.push(...staged.value);
      return staged.next;
    }
    const activation =
      native.kind === 'linear' && behind?.kind === 'activate' ? fusableActivation(native, behind) : null;
    const planned = planNative(native, index, activation, facts);
    if (planned !== null) launches.push(planned);
    return activation === null ? index + 1 : index + 2;
  }
  if (op.kind === 'norm' || op.kind === 'round-input') {
    const normed = normedCertificate(ops, index, facts);
    if (normed !== null) {
      const { rows } = normed.value;
      launches.push(planNormedCertificate(normed.value));
      return rows === null ? normed.next : planSets(ops, rows, normed.next, facts, launches);
    }
  }
  if (op.kind === 'norm' && behind?.kind === 'round-input' && roundsNorm(op, behind, facts)) {
    launches.push(...planRoundInput(behind, index + 1, op, facts));
    return index + 2;
  }
  if (op.kind === 'certify') {
    const group = certifiedRows(ops, index, facts);
    if (group !== null) {
      launches.push(planCertifiedRows(group.value, facts));
      return planSets(ops, group.value, group.next, facts, launches);
    }
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
  const lookup = planLookup(ops, index, facts);
  if (lookup !== null) {
    launches.push(...lookup.value);
    return lookup.next;
  }
  const direct = directAt(ops, index);
  if (direct !== null) {
    launches.push(planActiveDirect(direct.compact, direct.product, index + 1, facts));
    return index + 2;
  }
  launches.push(...planOne(op, index, facts));
  return index + 1;
}

/** An active set and the product over it that are one launch. */
function directAt(ops: readonly PlacedOp[], index: number) {
  const compact = ops[index]?.op;
  const product = ops[index + 1]?.op;
  if (compact?.kind !== 'compact' || product?.kind !== 'active-inputs') return null;
  return nativeProduct(product) === null && readsWholeSet(compact, product) ? { compact, product } : null;
}

/** Behind certificates with their rows: the set of these, which only the host asks for, is made beside the next product. */
function planSets(
  ops: readonly PlacedOp[],
  value: CertifiedRows,
  next: number,
  facts: LaunchFacts,
  launches: Launch[],
): number {
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
    case 'retain-rows':
      return [planRetainRows(null, op, index)];
    case 'guess-rows':
      return [planGuessRows(op, index)];
    case 'held-inputs':
      return planHeldInputs(op, index, facts);
    case 'held-outputs':
      return planHeldOutputs(op, index, facts);
    case 'activate':
      return planActivate(op, index);
    case 'gated-product':
      return planGatedProduct(op, index);
    case 'add':
      return planAdd(op, index);
    case 'norm':
      return planNorm(op, index);
    case 'rope':
      return planRope(op, index);
    case 'store-kv':
      return planStoreKv(op, index, facts);
    case 'attention':
      return planAttention(op, index, facts);
    case 'greedy':
      return planGreedy(op, index);
    case 'round-input':
      return planRoundInput(op, index, null, facts);
    case 'certify':
      return planCertify(op, index, facts);
  }
}
