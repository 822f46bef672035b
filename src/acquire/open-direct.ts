import { type Span, subspan } from '../memory/buffers.js';
import type { HoldCause } from '../memory/causes.js';
import { directSetBytes, guessIndexBytes } from './arrangement.js';
import type { Placement } from './placement.js';
import { directPaths } from './policy.js';

/** What rows that are read from the host need on the device; the placement has it as one component. */
export interface DirectSpans {
  readonly neurons: number;
  /** U32 [matrices, 1 + neurons] */
  readonly sets: Span;
  /** U32 [matrices]; with `hits` and `guessed` behind it where there are any. */
  readonly counts: Span;
  /** U32 [matrices], of neurons whose rows have places; null where no rows are retained or guessed. */
  readonly hits: Span | null;
  /** U32 [matrices], of rows that were guessed, and U32 [rooms, neurons], where they lie; null where none are. */
  readonly guessed: Span | null;
  readonly guessIndices: Span | null;
  readonly numbers: Span; // Int32 [matrices]
}

/** Null where no rows are read so. */
export function openDirect(
  { matrices, activeNeurons, retention, forecast, guesser, arenas }: Placement,
  allocate: (label: string, cause: HoldCause, byteLength: number) => Span,
): DirectSpans | null {
  const fed = matrices.filter(({ arena }) => arena !== null);
  if (!fed.some(({ paths }) => directPaths.has(paths.decode)) || guesser !== undefined) return null;
  const path = forecast !== null ? 'forecast' : retention !== null ? 'retained' : null;
  const setBytes = fed.length * 4 * (1 + activeNeurons);
  const wordBytes = fed.length * 4;
  const all = allocate(
    'active sets of rows on the host',
    'indices',
    fed.length * directSetBytes(activeNeurons, path) + guessIndexBytes(activeNeurons, arenas),
  );
  const countBytes = (path === 'forecast' ? 3 : path === 'retained' ? 2 : 1) * wordBytes;
  const endOfNumbers = setBytes + countBytes + wordBytes;
  return {
    neurons: activeNeurons,
    sets: subspan(all, 0, setBytes),
    counts: subspan(all, setBytes, countBytes),
    hits: path === null ? null : subspan(all, setBytes + wordBytes, wordBytes),
    guessed: path === 'forecast' ? subspan(all, setBytes + 2 * wordBytes, wordBytes) : null,
    guessIndices:
      path === 'forecast' ? subspan(all, endOfNumbers, guessIndexBytes(activeNeurons, arenas)) : null,
    numbers: subspan(all, setBytes + countBytes, wordBytes),
  };
}
