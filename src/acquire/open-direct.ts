import { type Span, subspan } from '../memory/buffers.js';
import type { HoldCause } from '../memory/causes.js';
import { directSetBytes } from './arrangement.js';
import type { Placement } from './placement.js';
import { directPaths } from './policy.js';

/** What rows that are read from the host need on the device; the placement has it as one component. */
export interface DirectSpans {
  readonly neurons: number;
  /** U32 [matrices, 1 + neurons] */
  readonly sets: Span;
  /** U32 [matrices]; with `hits` behind it where rows are retained. */
  readonly counts: Span;
  /** U32 [matrices], of neurons whose rows have places; null where no rows are retained. */
  readonly hits: Span | null;
  readonly numbers: Span; // Int32 [matrices]
}

/** Null where no rows are read so. */
export function openDirect(
  { matrices, activeNeurons, retention }: Placement,
  allocate: (label: string, cause: HoldCause, byteLength: number) => Span,
): DirectSpans | null {
  const fed = matrices.filter(({ arena }) => arena !== null);
  if (!fed.some(({ paths }) => directPaths.has(paths.decode))) return null;
  const retained = retention !== null;
  const setBytes = fed.length * 4 * (1 + activeNeurons);
  const wordBytes = fed.length * 4;
  const all = allocate(
    'active sets of rows on the host',
    'indices',
    fed.length * directSetBytes(activeNeurons, retained),
  );
  const countBytes = retained ? 2 * wordBytes : wordBytes;
  return {
    neurons: activeNeurons,
    sets: subspan(all, 0, setBytes),
    counts: subspan(all, setBytes, countBytes),
    hits: retained ? subspan(all, setBytes + wordBytes, wordBytes) : null,
    numbers: subspan(all, setBytes + countBytes, wordBytes),
  };
}
