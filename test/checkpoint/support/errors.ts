import { expect } from 'vitest';
import { WaybillError } from '../../../src/base/errors.js';

/** Awaits the error of an action, which must be one of Waybill's, and checks code and message. */
export async function expectError(
  action: () => unknown,
  code: string,
  message: RegExp | string,
): Promise<WaybillError> {
  let caught: unknown;
  try {
    await action();
  } catch (cause) {
    caught = cause;
  }
  expect(caught, `an error "${code}" is wanted`).toBeInstanceOf(WaybillError);
  const error = caught as WaybillError;
  expect(error.code, error.message).toBe(code);
  if (typeof message === 'string') expect(error.message).toContain(message);
  else expect(error.message).toMatch(message);
  expect(error.message.endsWith('.')).toBe(false);
  return error;
}
