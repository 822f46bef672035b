import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { openSession, planSession, type Session } from '../generate/session.js';
import { processUsage } from '../memory/process-usage.js';
import type { ArmDriver, Episode, EpisodeListener, EpisodeUsage } from './arm-driver.js';
import { decimals } from './arm-driver.js';
import { type ArmPlaces, armSessionOptions } from './arm-session.js';
import type { SessionArm } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';
import { recorderRoomBytes } from './recorder-room.js';

/** An arm that runs in this process: one session, kept until it is closed. */
export async function openSessionArm(
  arm: SessionArm,
  places: ArmPlaces,
  signal: AbortSignal,
): Promise<ArmDriver> {
  const began = process.hrtime.bigint();
  const plan = await planSession(armSessionOptions(arm, places), { signal });
  const session = await openSession(plan, { signal });
  return new SessionDriver(session, process.hrtime.bigint() - began);
}

class SessionDriver implements ArmDriver {
  readonly setupNs: bigint;
  readonly setupMoved: Record<string, string>;
  readonly facts: TrialRecord['arm'];
  readonly processId = null;
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
      budgetBytes: placement.budgetBytes === null ? null : String(placement.budgetBytes + recorderRoomBytes),
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
      let row: string | null = null;
      const generation = this.#session.generate([prompt], options, {
        signal,
        ...(episode.keepLogits
          ? {
              onLogits: (_request: number, _index: number, logits: Float32Array) =>
                (row = logitsText(logits)),
            }
          : {}),
      });
      for await (const { tokenId, logitsDigest } of generation)
        listener.token(request, tokenId, logitsDigest, row);
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
        ...devicePeaks(this.#session),
      },
    };
  }

  holdRecording(byteLength: number): void {
    this.#session.ledger.hold('recording', byteLength);
  }

  releaseRecording(byteLength: number): void {
    this.#session.ledger.release('recording', byteLength);
  }

  async close(): Promise<{ heldBytes: bigint; children: number }> {
    await this.#session.close();
    return { heldBytes: this.heldBytes(), children: 0 };
  }
}

/** Where a device computes: what the system saw of it, unless that was of several sessions, and pinned host memory. */
function devicePeaks({ backend }: Session): { deviceUsedBytes: string | null; pinnedBytes: string | null } {
  const use = backend.deviceWatch?.use;
  const sampled = use?.sampled ?? null;
  return {
    deviceUsedBytes: sampled === null || sampled.source === 'shared' ? null : String(sampled.peakBytes),
    pinnedBytes: use === undefined ? null : String(use.pinnedBytes),
  };
}

/** A row as little-endian binary32 in base64. */
function logitsText(row: Float32Array): string {
  const bytes = Buffer.alloc(4 * row.length);
  for (const [index, value] of row.entries()) bytes.writeFloatLE(value, 4 * index);
  return bytes.toString('base64');
}

function add(sums: Record<string, number>, more: Readonly<Record<string, number>>): void {
  for (const [cause, count] of Object.entries(more)) sums[cause] = (sums[cause] ?? 0) + count;
}
