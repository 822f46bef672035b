import { parseByteSize } from '../base/byte-size.js';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { openSession, planSession, type Session } from '../generate/session.js';
import type { SessionOptions } from '../generate/session-options.js';
import { processUsage } from '../memory/process-usage.js';
import type { ArmDriver, Episode, EpisodeListener, EpisodeUsage } from './arm-driver.js';
import { decimals } from './arm-driver.js';
import type { SessionArm } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';

/** The session options that an arm states. */
export function armSessionOptions(
  arm: SessionArm,
  model: string,
): Partial<SessionOptions> & { model: string } {
  return {
    model,
    policy: arm.policy,
    backend: arm.backend,
    kernels: arm.kernels,
    threads: arm.threads,
    kv: arm.kv,
    budgetBytes: limitOf(arm.budget),
    ...(arm.hostBudget === undefined ? {} : { hostBudgetBytes: limitOf(arm.hostBudget) }),
    ...(arm.retain === undefined ? {} : { retain: arm.retain }),
    ...(arm.forecast === undefined ? {} : { forecast: arm.forecast }),
    contextPositions: arm.contextPositions,
    prefillChunk: arm.prefillChunk,
  };
}

function limitOf(size: string): number {
  return size === 'none' ? Infinity : parseByteSize(size);
}

/** An arm that runs in this process: one session, kept until it is closed. */
export async function openSessionArm(
  arm: SessionArm,
  model: string,
  signal: AbortSignal,
): Promise<ArmDriver> {
  const began = process.hrtime.bigint();
  const plan = await planSession(armSessionOptions(arm, model), { signal });
  const session = await openSession(plan, { signal });
  return new SessionDriver(session, process.hrtime.bigint() - began);
}

class SessionDriver implements ArmDriver {
  readonly setupNs: bigint;
  readonly setupMoved: Record<string, string>;
  readonly facts: TrialRecord['arm'];
  readonly #session: Session;

  constructor(session: Session, setupNs: bigint) {
    this.#session = session;
    this.setupNs = setupNs;
    this.setupMoved = decimals(session.setup.moved);
    const { info } = session.backend;
    const { placement } = session.plan;
    this.facts = {
      backend: info.name,
      kernels: info.kernels,
      kernelDigest: info.kernelDigest,
      numerics: info.numerics,
      threads: info.threads,
      policy: placement.policy,
      regime: placement.regime,
      budgetBytes: placement.budgetBytes === null ? null : String(placement.budgetBytes),
      planDigest: sha256Hex(Buffer.from(canonicalJson(placement), 'utf8')),
      plannedBytes: String(placement.totalBytes),
    };
  }

  residentSetBytes(): bigint {
    return BigInt(process.memoryUsage.rss());
  }

  heldBytes(): bigint {
    return BigInt(this.#session.ledger.totalHeld);
  }

  async runEpisode(episode: Episode, listener: EpisodeListener, signal: AbortSignal): Promise<EpisodeUsage> {
    const moved: Record<string, number> = {};
    const movedRows: Record<string, number> = {};
    let deviceRead: number | null = 0;
    listener.begin();
    for (const [request, prompt] of episode.prompts.entries()) {
      const options = { maxNewTokens: episode.newTokens, ignoreEos: true };
      const generation = this.#session.generate([prompt], options, { signal });
      for await (const { tokenId, logitsDigest } of generation)
        listener.token(request, tokenId, logitsDigest);
      const { times, bytes, requests, deviceReadBytes } = generation.outcome;
      listener.requestEnd(request, requests[0]!.finishReason, times);
      add(moved, bytes.moved);
      add(movedRows, bytes.movedRows);
      deviceRead = deviceRead === null || deviceReadBytes === null ? null : deviceRead + deviceReadBytes;
    }
    listener.end();
    const { heldPeak, totalHeldPeak } = this.#session.ledger.totals();
    return {
      moved: decimals(moved),
      movedRows: decimals(movedRows),
      deviceRead: deviceRead === null ? null : String(deviceRead),
      peaks: {
        heldBytes: String(totalHeldPeak),
        heldByCause: decimals(heldPeak),
        residentSetBytes: String(processUsage().peakResidentBytes),
        deviceUsedBytes: null,
        pinnedBytes: null,
      },
    };
  }

  async close(): Promise<{ heldBytes: bigint; children: number }> {
    await this.#session.close();
    return { heldBytes: this.heldBytes(), children: 0 };
  }
}

function add(sums: Record<string, number>, more: Readonly<Record<string, number>>): void {
  for (const [cause, count] of Object.entries(more)) sums[cause] = (sums[cause] ?? 0) + count;
}
