import type { SessionPlan } from './session.js';

/** Whether this process has had all weights of a model in a device's memory. */
let heldWholeModel = false;

/**
 * Whether a session that is being opened may claim that its device never held more than the budget, from the process's
 * start: false once any session of the process has placed a whole model there, whose memory a driver or a library may have
 * kept. Null for backends without a device.
 */
export function claimBoundedStart({ backend, placement }: SessionPlan): boolean | null {
  if (backend.deviceWatch === undefined) return null;
  if (placement.regime === 'resident') heldWholeModel = true;
  return !heldWholeModel;
}
