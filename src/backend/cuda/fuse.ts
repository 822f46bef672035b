import type { Span } from '../../memory/buffers.js';
import type { ActivateOp, ActiveInputsOp, CompactOp, LinearOp, NormOp, PlacedOp, StoreKvOp } from '../ops.js';
import { activationCodes } from '../program.js';
import { at, largestRowsVariant } from './launch.js';
import type { FusedActivation, LinearGroup } from './plan-linear-rows.js';
import { nativeProduct } from './plan-native.js';

/** Rows up to which a norm is part of the product behind it: more rows of inputs do not fit beside the rest. */
const mostNormRows = 2;

/** Ops from one index on that are one launch, and the index behind them. */
export interface Fused<Value> {
  readonly value: Value;
  readonly next: number;
}

/**
 * Products that share a launch, from `index` on: a norm in front, up to three products of its result, the store of the
 * second and third as keys and values, or the activation of a single one. Null where no product of few rows begins.
 */
export function linearGroup(ops: readonly PlacedOp[], index: number): Fused<LinearGroup> | null {
  const first = ops[index]!.op;
  const norm = first.kind === 'norm' ? first : null;
  let next = norm === null ? index : index + 1;
  const opIndex = next;
  const products: LinearOp[] = [];
  while (products.length < 3) {
    const candidate = ops[next]?.op;
    if (candidate?.kind !== 'linear' || !fewRows(candidate)) break;
    if (products.length === 0 && norm !== null && !normedBy(candidate, norm)) break;
    if (products.length > 0 && !shareLaunch(products, candidate)) break;
    products.push(candidate);
    next += 1;
  }
  if (products.length === 0) return null;
  const behind = ops[next]?.op;
  let activation: FusedActivation | null = null;
  let store: LinearGroup['store'] = null;
  if (products.length === 1 && behind?.kind === 'activate') {
    activation = fusableActivation(products[0]!, behind);
    if (activation !== null) next += 1;
  } else if (products.length === 3 && behind?.kind === 'store-kv' && storesProducts(products, behind)) {
    store = { op: behind, opIndex: next };
    next += 1;
  }
  return { value: { products, opIndex, norm, activation, store }, next };
}

function fewRows(op: LinearOp): boolean {
  return (
    op.rows > 0 &&
    op.outputs > 0 &&
    op.rows <= largestRowsVariant &&
    op.matrix.layout === 'input-major' &&
    nativeProduct(op) === null
  );
}

function normedBy(product: LinearOp, norm: NormOp): boolean {
  return (
    norm.rows <= mostNormRows &&
    norm.rows === product.rows &&
    at(norm.out) === at(product.x) &&
    at(norm.out) !== at(norm.x) &&
    product.inputBegin === 0 &&
    product.inputEnd === norm.width &&
    product.xStride === norm.width
  );
}

function shareLaunch(products: readonly LinearOp[], b: LinearOp): boolean {
  return (
    sameShape(products[0]!, b) && b.residual === null && products.every(({ out }) => !overlap(out, b.out))
  );
}

/** Whether two products read the same rows of inputs, through matrices of one type and stride, to rows of one stride. */
export function sameShape(a: LinearOp, b: LinearOp): boolean {
  return (
    a.rows === b.rows &&
    at(a.x) === at(b.x) &&
    a.xStride === b.xStride &&
    a.inputBegin === b.inputBegin &&
    a.inputEnd === b.inputEnd &&
    a.outStride === b.outStride &&
    a.continues === b.continues &&
    a.matrix.type === b.matrix.type &&
    a.matrix.rowStride === b.matrix.rowStride
  );
}

export function overlap(a: Span, b: Span): boolean {
  return at(a) < at(b) + b.byteLength && at(b) < at(a) + a.byteLength;
}

function storesProducts([, keys, values]: readonly LinearOp[], store: StoreKvOp): boolean {
  const { kvHeads, headDim } = store.cache;
  return [keys!, values!].every(
    (product, which) =>
      product.rows === store.rows &&
      product.outOffset === 0 &&
      product.outStride === product.outputs &&
      product.outputs === kvHeads * headDim &&
      at(product.out) === at(which === 0 ? store.keys : store.values),
  );
}

/** The activation of exactly the product's results, if it is one that the product can apply. */
export function fusableActivation(
  product: Pick<LinearOp, 'rows' | 'outputs' | 'out' | 'outOffset' | 'outStride'>,
  activate: ActivateOp,
): FusedActivation | null {
  const { activation } = activate;
  if (activation !== 'relu' && activation !== 'relu2' && activation !== 'fatrelu') return null;
  const whole = product.outOffset === 0 && product.outStride === product.outputs;
  if (!whole || at(activate.x) !== at(product.out) || activate.count !== product.rows * product.outputs) {
    return null;
  }
  const threshold = activation === 'fatrelu' ? Math.fround(activate.threshold) : 0;
  return { code: activationCodes[activation], threshold };
}

/** Rows up to which an active set and the product over it are one launch; the kernels' variants. */
const mostDirectRows = 4;

/** Whether a product reads exactly the set that the op in front of it makes, from rows that lie by neuron. */
export function readsWholeSet(compact: CompactOp, product: ActiveInputsOp): boolean {
  return (
    compact.rows <= mostDirectRows &&
    compact.rows === product.rows &&
    at(compact.x) === at(product.x) &&
    at(compact.active) === at(product.active) &&
    compact.width === product.xStride &&
    compact.width > 0 &&
    product.listBegin === 0 &&
    product.listEnd < 0 &&
    product.slots === null &&
    product.outputs > 0
  );
}
