import type { Pass } from '../backend/pass.js';
import { DefectError } from '../base/errors.js';
import type { BoundCertificate, BoundMatrix } from './bound-matrix.js';
import type { LinearRequest } from './weight-source.js';

/**
 * Marks, where a first projection or gate is to go, the neurons that must be computed: 1 for each whose certificate fails,
 * +0 for those that are proven inactive, which is what their activation makes of them. As a gate, the marks then say
 * which rows are needed, and the product with those rows takes their place, for all rows of the pass.
 */
export function emitCertificate(
  pass: Pass,
  { description: { id }, bias }: BoundMatrix,
  { copy, rounded, threshold }: BoundCertificate,
  { rows, x, out, residual }: LinearRequest,
): void {
  if (residual !== null) throw new DefectError(`Cannot certify "${id}": a residual is added to it`);
  pass.emit(`${id}.rounded`, { kind: 'round-input', rows, x, copy, out: rounded });
  pass.emit(`${id}.certificate`, { kind: 'certify', rows, copy, input: rounded, bias, threshold, out });
}
