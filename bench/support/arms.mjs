// Arms of a model that is opened anew for each trial: what a decode step took, what it moved, what the plan had expected.
import { planPlacement } from '../../dist/acquire/plan.js';
import { priceToken } from '../../dist/acquire/price.js';
import { loadNative } from '../../dist/backend/cpu/native-status.js';
import { openSession, planSession } from '../../dist/generate/session.js';
import { weightMoveCauses } from '../../dist/memory/causes.js';
import { median } from './statistics.mjs';

const { library } = loadNative();

/** Whether the page cache can be emptied of a file; without it there are no cold reads. */
export const canEvict = library !== null;

const weightBytes = (moved) => weightMoveCauses.reduce((sum, cause) => sum + moved[cause], 0);

/** `options` of a session; `keepRows: false` for packets that forget their rows; `rates` to price the plan by. */
export async function runArm({ options, keepRows = true, cold, tokens, prompt, rates }) {
  const plan = await planSession({
    contextPositions: prompt.length + tokens + 2,
    prefillChunk: 16,
    ...options,
  });
  const placement = keepRows ? plan.placement : planPlacement({ ...plan.request, keepRows: false });
  const session = await openSession({ ...plan, placement });
  try {
    const { weightsFile } = plan.prepared;
    const file = session.quantised?.file ?? weightsFile;
    const generation = session.generate([prompt], { maxNewTokens: tokens + 1, ignoreEos: true });
    let afterPrompt = null;
    for await (const _ of generation) {
      afterPrompt ??= weightBytes(session.ledger.totals().moved);
      if (cold) library.evict(file.descriptor);
    }
    const movedAll = weightBytes(session.ledger.totals().moved);
    const { times, bytes, deviceReadBytes, requests, decodePasses } = generation.outcome;
    // The first step still meets what the prompt left in the cache.
    const steps = times.decodeStepNs.slice(1).map((ns) => Number(ns) / 1e6);
    return {
      policy: placement.policy,
      regime: placement.regime,
      exact: placement.exact,
      heldBytes: bytes.totalHeldPeak,
      msPerToken: median(steps),
      prefillMs: Number(times.prefillNs) / 1e6,
      outsideMs: (Number(times.totalNs) - Number(times.prefillNs) - Number(times.decodeNs)) / 1e6,
      movedBytes: weightBytes(bytes.moved),
      // Reading ahead has begun when the prompt's token comes, so streamed bytes are a piece or two off.
      bytesPerToken: Math.round((movedAll - afterPrompt) / Math.max(1, decodePasses)),
      causes: Object.fromEntries(Object.entries(bytes.moved).filter(([, moved]) => moved > 0)),
      rows: Object.fromEntries(Object.entries(bytes.movedRows).filter(([, moved]) => moved > 0)),
      deviceReadBytes,
      decodePasses,
      digest: requests[0].logitsDigests.join(),
      price:
        rates === undefined ? null : priceToken(placement, rates, session.backend.hostTier !== undefined),
    };
  } finally {
    await session.close();
  }
}
