import { getSystemErrorMap } from 'node:util';
import {
  DefectError,
  ExecutionError,
  NumericsError,
  SetupError,
  type WaybillError,
} from '../../base/errors.js';
import type { Transfer } from '../backend.js';
import type { PlacedOp } from '../ops.js';

/** Failure codes of native/job.h. */
const failureCodes = { kvOverflow: 1, indexOutOfRange: 2, unknownOp: 3 } as const;

/** What `wb_submit` returned, as the error that a person meets. */
export function submissionError(status: number, ops: readonly PlacedOp[]): WaybillError {
  if (status < 0)
    return new SetupError('out-of-memory', 'Cannot run ops: the system refused memory for the workspace');
  const index = Math.floor(status / 256) - 1;
  const code = status % 256;
  const label = ops[index]?.label ?? `op ${index}`;
  switch (code) {
    case failureCodes.kvOverflow:
      return new NumericsError(
        'kv-overflow',
        `Cannot store keys and values at "${label}": a finite value is too large for F16, use --kv f32`,
        { label },
      );
    case failureCodes.indexOutOfRange:
      return new DefectError(`Op "${label}" gathers a row outside its table`, { label });
    case failureCodes.unknownOp:
      return new DefectError(`Op "${label}" has a code that the native kernels do not know`, { label });
    default:
      return new DefectError(`Op "${label}" failed with unknown code ${code}`, { label });
  }
}

/** What `wb_transfer` returned; `failure` is (region, bytes read or errno). */
export function transferError(
  status: number,
  failure: Float64Array,
  transfers: readonly Transfer[],
): WaybillError {
  if (status < 0)
    return new SetupError('out-of-memory', 'Cannot transfer: the system refused memory for the plan');
  const { file, position, target } = transfers[failure[0] ?? 0]!;
  const data = { path: file.path, position: String(position), byteLength: String(target.byteLength) };
  const what = `Cannot read ${target.byteLength} bytes at ${position} of "${file.path}"`;
  if (status === 1) {
    return new ExecutionError('short-read', `${what}: the file ended after ${failure[1]} of them`, data);
  }
  const errno = failure[1] ?? 0;
  const [name, text] = getSystemErrorMap().get(-errno) ?? [`errno ${errno}`, 'unknown error'];
  return new ExecutionError('read-failed', `${what}: ${text} (${name})`, { ...data, errno: name });
}
