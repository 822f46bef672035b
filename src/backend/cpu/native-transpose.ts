import { ExecutionError, SetupError } from '../../base/errors.js';
import type { StoredMatrix, TransposedReader } from '../../checkpoint/transpose.js';
import { loadNative } from './native-status.js';

/** Calls that run beside one another are as many as libuv has threads; more of them even out what each takes. */
const parts = 8;
/** Rows that a call takes at least: a line of the cache holds so many elements of a written column. */
const leastRows = 64;

/** Matrices turned by native code while they are read; undefined where there is none, which `transposeTile` stands in for. */
export function nativeTransposer(): TransposedReader | undefined {
  const { library } = loadNative();
  if (library === null) return undefined;
  return async (matrix, target) => {
    const { descriptor, position, rows, columns, elementBytes } = matrix;
    if (target.byteLength !== rows * columns * elementBytes || (elementBytes !== 2 && elementBytes !== 4)) {
      throw new RangeError(
        `Cannot read ${rows} x ${columns} elements of ${elementBytes} bytes into ${target.byteLength} bytes`,
      );
    }
    const each = Math.max(leastRows, Math.ceil(rows / parts / leastRows) * leastRows);
    const calls: Promise<void>[] = [];
    for (let first = 0; first < rows && columns > 0; first += each) {
      const last = Math.min(rows, first + each);
      const failure = new Float64Array(1);
      const words = Float64Array.of(position, rows, columns, elementBytes, first, last);
      calls.push(
        library.readTransposed(descriptor, words, target, failure).then((code) => {
          if (code !== 0) throw failureOf(code, failure[0]!, matrix);
        }),
      );
    }
    // None may write after the caller has gone on.
    for (const outcome of await Promise.allSettled(calls)) {
      if (outcome.status === 'rejected') throw outcome.reason;
    }
  };
}

function failureOf(code: number, figure: number, matrix: StoredMatrix): ExecutionError | SetupError {
  const { path, position, rows, columns, elementBytes } = matrix;
  const byteLength = rows * columns * elementBytes;
  if (code === -1) {
    return new SetupError(
      'out-of-memory',
      `Cannot read ${byteLength} bytes of "${path}" transposed: the system has no memory for it`,
    );
  }
  const [kind, reason] =
    code === 1
      ? (['short-read', `the file ended after ${figure} of them`] as const)
      : (['read-failed', `errno ${figure}`] as const);
  return new ExecutionError(kind, `Cannot read ${byteLength} bytes at ${position} of "${path}": ${reason}`, {
    path,
    position: String(position),
    byteLength: String(byteLength),
  });
}
