/**
 * Errors that a person meets. The class says the kind and with it the exit code; `code` names the case for
 * machines; `data` holds the figures. A message begins with the action that failed, quotes strings, gives the
 * current and the wanted state, and has no full stop.
 */

/** Plain data attached to an error; byte counts and other integers that can pass 2^53 are decimal strings. */
export type ErrorData = Readonly<Record<string, unknown>>;

/** Exit codes of every command (docs/formats/exit-codes.md). */
export const exitCodes = {
  ok: 0,
  gateFailed: 1,
  usage: 2,
  setup: 3,
  execution: 4,
  inconclusive: 5,
  tampered: 6,
  interrupted: 130,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** Base of every error that Waybill throws on purpose. */
export abstract class WaybillError extends Error {
  abstract readonly exitCode: ExitCode;
  readonly code: string;
  readonly data: ErrorData;

  constructor(code: string, message: string, data: ErrorData = {}, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.data = Object.freeze({ ...data });
  }
}

/** A flag, option or argument that cannot be used as given. */
export class UsageError extends WaybillError {
  readonly exitCode = exitCodes.usage;
}

/** A checkpoint, tokenizer or other input file that is malformed, incomplete or contradictory. */
export class InputError extends WaybillError {
  readonly exitCode = exitCodes.usage;
}

/** Something the machine lacks: a backend, a model folder, disk space, memory. */
export class SetupError extends WaybillError {
  readonly exitCode = exitCodes.setup;
}

/** A request that does not fit the byte budget; refused before the first allocation. */
export class BudgetError extends WaybillError {
  readonly exitCode = exitCodes.setup;
}

/** Arithmetic that left the numbers (non-finite logits, a key too large for the KV type). */
export class NumericsError extends WaybillError {
  readonly exitCode = exitCodes.execution;
}

/** Something failed while running: a read came back short, a kernel failed, a worker died. */
export class ExecutionError extends WaybillError {
  readonly exitCode = exitCodes.execution;
}

/** A digest or signature that does not hold. */
export class TamperedError extends WaybillError {
  readonly exitCode = exitCodes.tampered;
}

/** The run was cancelled by its `AbortSignal` or by a signal to the process. */
export class InterruptedError extends WaybillError {
  readonly exitCode = exitCodes.interrupted;
}

/** A state that the code itself rules out; reaching it is a defect of Waybill. */
export class DefectError extends WaybillError {
  readonly exitCode = exitCodes.execution;

  constructor(message: string, data: ErrorData = {}) {
    super('defect', message, data);
  }
}
