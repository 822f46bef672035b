import { closePlan, planSession } from '../../src/generate/session.js';
import type { SessionOptions } from '../../src/generate/session-options.js';

/** The smallest budget that a session can be planned in. */
export async function minimumOf(options: Partial<SessionOptions> & { model: string }): Promise<number> {
  const plan = await planSession(options);
  try {
    return plan.placement.minimumBytes;
  } finally {
    await closePlan(plan);
  }
}
