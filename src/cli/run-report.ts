import { formatByteSize } from '../base/byte-size.js';
import type { GenerationOutcome } from '../generate/outcome.js';
import type { RestoreCheck } from '../generate/restore-check.js';
import type { Session } from '../generate/session.js';
import { weightMoveCauses } from '../memory/causes.js';
import { processUsage } from '../memory/process-usage.js';

/** New tokens a second while decoding, over all requests; null with fewer than two tokens. */
export function decodeTokensPerSecond({ requests, times, decodePasses }: GenerationOutcome): number | null {
  const later = requests.reduce((sum, { tokenIds }) => sum + Math.max(0, tokenIds.length - 1), 0);
  if (decodePasses === 0 || later === 0) return null;
  return later / (Number(times.decodeNs) / 1e9);
}

/** Bytes that crossed the link while generating, for all causes but read-backs of results to the program itself. */
export function movedWeightBytes({ bytes: { moved } }: GenerationOutcome): number {
  return weightMoveCauses.reduce((sum, cause) => sum + moved[cause], 0);
}

/** What `--restore-check` found, in a line. */
export function restoreText({ weights, weightBytes, logits, difference }: RestoreCheck): string {
  if (difference === null) {
    return `restored: ${weights} tensors of ${formatByteSize(weightBytes)} as in the manifest, ${logits} logits digests equal`;
  }
  const { what, where, expected, found } = difference;
  return `restored: a difference in ${what} at ${where}: ${found}, want ${expected}`;
}

/** The one object of `generate --json`. */
export function runJson(
  session: Session,
  outcome: GenerationOutcome,
  restored: RestoreCheck | null = null,
): unknown {
  const requests = outcome.requests.map(
    ({ promptTokenIds, text, tokenIds, finishReason, logitsDigests }) => ({
      text,
      tokenIds,
      finishReason,
      promptTokens: promptTokenIds.length,
      digests: { logits: logitsDigests },
    }),
  );
  const { placement } = session.plan;
  const common = {
    status: outcome.status,
    policy: placement.policy,
    exact: placement.exact,
    choice: session.plan.choice,
    regime: placement.regime,
    backend: session.backend.info,
    backendChoice: session.plan.backendChoice,
    budgetBytes: placement.budgetBytes === null ? null : BigInt(placement.budgetBytes),
    timings: {
      episode: outcome.times.episode,
      openNs: session.openNs,
      prefillNs: outcome.times.prefillNs,
      decodeNs: outcome.times.decodeNs,
      totalNs: outcome.times.totalNs,
      timeToFirstTokenNs: outcome.times.timeToFirstTokenNs,
      decodeTokensPerSecond: decodeTokensPerSecond(outcome),
    },
    bytes: {
      moved: bigints(outcome.bytes.moved),
      movedRows: bigints(outcome.bytes.movedRows),
      setupMoved: bigints(session.setup.moved),
      deviceRead: outcome.deviceReadBytes === null ? null : BigInt(outcome.deviceReadBytes),
    },
    peaks: {
      heldBytes: BigInt(outcome.bytes.totalHeldPeak),
      held: bigints(outcome.bytes.heldPeak),
      residentSetBytes: BigInt(processUsage().peakResidentBytes),
      device: devicePeaks(session),
    },
    ...(session.lowBit === null ? {} : { certificates: certificatesOf(session) }),
    ...(restored === null ? {} : { restored: { ...restored, weightBytes: BigInt(restored.weightBytes) } }),
  };
  return requests.length === 1 ? { ...requests[0], ...common } : { requests, ...common };
}

/** By layer, over all passes of new tokens whose first projection came by rows: neurons judged, and what was found. */
function certificatesOf({ source }: Session): unknown[] {
  return source.stats().layers.map(({ judgedRows, uncertainRows, activeRows, movedRows }, layer) => ({
    layer,
    judged: judgedRows,
    certified: judgedRows - uncertainRows,
    uncertain: uncertainRows,
    active: activeRows,
    movedRows,
  }));
}

/** Share of neurons that certificates left undecided; null where none was judged. */
function uncertainText({ source, lowBit }: Session): string | null {
  if (lowBit === null) return null;
  const { layers } = source.stats();
  const judged = layers.reduce((sum, { judgedRows }) => sum + judgedRows, 0);
  const uncertain = layers.reduce((sum, { uncertainRows }) => sum + uncertainRows, 0);
  if (judged === 0) return null;
  return `${((100 * uncertain) / judged).toFixed(1)} % of neurons undecided (${lowBit.plan.name})`;
}

/** What a device held, as the backend and as the system counted it; null where there is none. */
function devicePeaks({ backend, boundedStart }: Session): unknown {
  const use = backend.deviceWatch?.use;
  if (use === undefined) return null;
  const { allocatedBytes, allocatedPeakBytes, pinnedBytes, sampled } = use;
  return {
    allocatedBytes: BigInt(allocatedBytes),
    allocatedPeakBytes: BigInt(allocatedPeakBytes),
    pinnedBytes: BigInt(pinnedBytes),
    boundedStart,
    sampled:
      sampled === null
        ? null
        : {
            ...sampled,
            currentBytes: BigInt(sampled.currentBytes),
            peakBytes: BigInt(sampled.peakBytes),
          },
  };
}

/** A line or two for people, after the text. */
export function runSummary(session: Session, outcome: GenerationOutcome): string {
  const { placement } = session.plan;
  const rate = decodeTokensPerSecond(outcome);
  const tokens = outcome.requests.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const first = outcome.times.timeToFirstTokenNs;
  const parts = [
    `${tokens} ${tokens === 1 ? 'token' : 'tokens'}`,
    rate === null ? null : `${rate.toFixed(1)} tokens/s`,
    first === null ? null : `first after ${(Number(first) / 1e6).toFixed(0)} ms`,
    `moved ${formatByteSize(movedWeightBytes(outcome))}`,
    `held at most ${formatByteSize(outcome.bytes.totalHeldPeak)}`,
    uncertainText(session),
    `policy ${placement.policy}${placement.exact ? '' : ' (not exact)'}, regime ${placement.regime}, ${session.backend.info.kernels}`,
  ];
  return parts.filter((part) => part !== null).join(' | ');
}

function bigints(counts: Readonly<Record<string, number>>): Record<string, bigint> {
  return Object.fromEntries(Object.entries(counts).map(([cause, count]) => [cause, BigInt(count)]));
}
