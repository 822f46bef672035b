import { outputOf } from '../backend/op-output.js';
import type { OpObserver } from '../backend/pass.js';
import { NumericsError } from '../base/errors.js';
import type { ForwardBatch } from './batch.js';
import { selectionLabel } from './layer-ops.js';

/**
 * Observer that finds where numbers first left the finite ones: run the pass of a non-finite logit once more with it;
 * passes are repeatable. Rejects the flush with `NumericsError` `non-finite` that names op, layer and position.
 */
export function nonFiniteFinder(batch: ForwardBatch): OpObserver {
  let rows = batch.rows;
  return async ({ op, label }, backend) => {
    if (label === selectionLabel) rows = batch.logitsRows.map((index) => batch.rows[index]!);
    const span = outputOf(op);
    // Columns that active-outputs leaves alone may hold anything; the gated product drops them.
    if (span === null || op.kind === 'active-outputs') return;
    const bytes = await backend.read(span);
    const values = new Float32Array(bytes.slice().buffer);
    const at = values.findIndex((value) => !Number.isFinite(value));
    if (at < 0) return;
    const position = rows[Math.floor(at / (values.length / rows.length))]!.position;
    const layer = /^layers\.(\d+)\./.exec(label)?.[1];
    const place = layer === undefined ? '' : ` in layer ${layer}`;
    throw new NumericsError(
      'non-finite',
      `Cannot compute logits at position ${position}: "${label}"${place} gave ${values[at]}, want finite numbers`,
      { position, layer: layer === undefined ? null : Number(layer), op: label, value: String(values[at]) },
    );
  };
}
