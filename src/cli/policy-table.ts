import type { PricedPolicy } from '../acquire/compare.js';
import type { Placement } from '../acquire/placement.js';
import { isExact } from '../acquire/policies.js';
import { plainTable } from './plain-table.js';

/** The table of `plan --compare`: what each policy holds and moves; bytes exact, so that they can be checked. */
export function policyTable(priced: readonly PricedPolicy[]): string {
  const table = plainTable([
    'policy',
    'regime',
    'least budget',
    'held',
    'a token',
    'a prompt pass',
    'ms a token',
  ]);
  for (const { policy, placement, minimumBytes } of priced) {
    const name = `${placement === null ? policy : nameOf(placement)}${isExact(policy) ? '' : ' (not exact)'}`;
    const cells =
      placement === null
        ? ['-', minimumBytes, 'does not fit', '-', '-', '-']
        : [
            placement.regime,
            minimumBytes,
            placement.totalBytes,
            placement.moved.expectedBytes,
            placement.moved.densePrefillBytes,
            placement.predictedMsPerToken?.toFixed(2) ?? '-',
          ];
    table.push([name, ...cells.map((content) => ({ hAlign: 'right' as const, content: String(content) }))]);
  }
  const notes = priced.flatMap(({ placement }) => placement?.notes ?? []);
  return `${table.toString()}\n${notes.map((note) => `note: ${note}\n`).join('')}`;
}

function nameOf({ policy, retention, forecast }: Placement): string {
  if (forecast !== null) return `${policy} ${forecast}`;
  if (retention === null) return policy;
  return `${policy} ${retention.kind === 'hot' ? 'hot:auto' : `lru:${retention.rowsPerMatrix}`}`;
}
