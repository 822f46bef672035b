import type { ActivateOp, LinearOp, Op, PlacedOp } from '../ops.js';
import { at, type Launch, type LaunchFacts } from './launch.js';
import { activationCodes } from './parameters.js';
import { type FusedActivation, type PlannedLinear, planLinear, shareLaunch } from './plan-linear.js';
import {
  planActivate,
  planAdd,
  planAttention,
  planGatedProduct,
  planGather,
  planNorm,
  planRope,
  planStoreKv,
} from './plan-rows.js';
import { planActiveInputs, planActiveOutputs, planCompact } from './plan-sparse.js';

/** The launches of a submission, in order. Pure. An activation joins the product before it, products of one x each other. */
export function planLaunches(ops: readonly PlacedOp[], facts: LaunchFacts): Launch[] {
  const launches: Launch[] = [];
  for (let index = 0; index < ops.length; ) {
    const { op } = ops[index]!;
    if (op.kind !== 'linear') {
      launches.push(...planOne(op, index, facts));
      index += 1;
      continue;
    }
    const products: PlannedLinear[] = [];
    let next = index;
    while (products.length < 3) {
      const candidate = ops[next]?.op;
      if (candidate?.kind !== 'linear' || (products.length > 0 && !shareLaunch(op, candidate))) break;
      if (products.length > 0 && writesInto(products, candidate)) break;
      products.push({ op: candidate, opIndex: next, activation: null });
      next += 1;
    }
    const behind = ops[next]?.op;
    if (products.length === 1 && behind?.kind === 'activate') {
      const activation = fusable(op, behind);
      if (activation !== null) {
        products[0] = { ...products[0]!, activation };
        next += 1;
      }
    }
    launches.push(...planLinear(products, facts));
    index = next;
  }
  return launches;
}

/** A product whose residual or result another one of the launch writes must wait for it. */
function writesInto(products: readonly PlannedLinear[], candidate: LinearOp): boolean {
  return products.some(({ op }) => {
    const begin = at(op.out);
    const end = begin + op.out.byteLength;
    return at(candidate.out) < end && begin < at(candidate.out) + candidate.out.byteLength;
  });
}

/** The activation of exactly the product's results, if it is one that the product can apply. */
function fusable(product: LinearOp, activate: ActivateOp): FusedActivation | null {
  const { activation } = activate;
  if (activation !== 'relu' && activation !== 'relu2' && activation !== 'fatrelu') return null;
  const whole = product.outOffset === 0 && product.outStride === product.outputs;
  if (!whole || at(activate.x) !== at(product.out) || activate.count !== product.rows * product.outputs) {
    return null;
  }
  const threshold = activation === 'fatrelu' ? Math.fround(activate.threshold) : 0;
  return { code: activationCodes[activation], threshold };
}

function planOne(op: Exclude<Op, LinearOp>, index: number, facts: LaunchFacts): Launch[] {
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
    case 'norm':
      return planNorm(op, index);
    case 'rope':
      return planRope(op, index);
    case 'store-kv':
      return planStoreKv(op, index, facts);
    case 'attention':
      return planAttention(op, index, facts);
  }
}
