import { saltedIdsDigest } from '../receipt/run-record.js';
import type { ArmDriver, EpisodeListener, RequestTimes } from './arm-driver.js';
import type { Difference, RequestRecord, Sample } from './record-format.js';
import { recorderRoomBytes } from './recorder-room.js';
import { SampleRing } from './sample-ring.js';

/** Ends a trial at the first token that differs. */
export class DifferenceFound extends Error {
  readonly difference: Difference;

  constructor(difference: Difference) {
    super('the results differ');
    this.name = 'DifferenceFound';
    this.difference = difference;
  }
}

/** How often memory is sampled while a trial runs. */
const sampleEveryMs = 25;

/**
 * Keeps what an episode gives, compares it as it comes, samples memory, and counts the time that all this takes. The
 * clock of the episode begins after it has set itself up and ends before it sums up.
 */
export class EpisodeRecorder implements EpisodeListener {
  readonly #driver: ArmDriver;
  readonly #expected: readonly RequestRecord[] | null;
  readonly #tokens: number[][];
  readonly #digests: string[][];
  readonly #ends: ({ finishReason: string; times: RequestTimes } | null)[];
  readonly #promptTokens: readonly number[];
  readonly #logits: string[][];
  /** Null with the recording off. */
  readonly #samples: SampleRing | null;
  readonly #deviceUsedBytes: () => number | null;
  #holding = false;
  #timer: NodeJS.Timeout | null = null;
  #recordingNs = 0n;
  beganNs: bigint;
  endedNs: bigint | null = null;

  constructor(
    driver: ArmDriver,
    prompts: readonly (readonly number[])[],
    expected: readonly RequestRecord[] | null,
    recording: { readonly sampling: boolean; readonly deviceUsedBytes: () => number | null },
  ) {
    this.#driver = driver;
    this.#expected = expected;
    this.#samples = recording.sampling ? new SampleRing() : null;
    this.#deviceUsedBytes = recording.deviceUsedBytes;
    this.#promptTokens = prompts.map(({ length }) => length);
    this.#tokens = prompts.map(() => []);
    this.#digests = prompts.map(() => []);
    this.#logits = prompts.map(() => []);
    this.#ends = prompts.map(() => null);
    this.beganNs = process.hrtime.bigint();
  }

  begin(): void {
    if (this.#samples !== null) {
      this.#driver.holdRecording?.(recorderRoomBytes);
      this.#holding = true;
      this.#timer = setInterval(() => this.#sample(), sampleEveryMs);
    }
    this.beganNs = process.hrtime.bigint();
  }

  token(request: number, tokenId: number, logitsDigest: string | null, logits: string | null): void {
    const began = process.hrtime.bigint();
    const index = this.#tokens[request]!.length;
    this.#tokens[request]!.push(tokenId);
    if (logits !== null) this.#logits[request]!.push(logits);
    if (logitsDigest !== null) {
      this.#digests[request]!.push(logitsDigest);
      const expected = this.#expected?.[request]?.logitsDigests[index];
      if (expected !== undefined && expected !== logitsDigest) {
        throw new DifferenceFound({ request, index, what: 'logits', expected, found: logitsDigest });
      }
    }
    this.#recordingNs += process.hrtime.bigint() - began;
  }

  requestEnd(request: number, finishReason: string, times: RequestTimes): void {
    this.#ends[request] = { finishReason, times };
  }

  end(): void {
    this.endedNs = process.hrtime.bigint();
  }

  #sample(): void {
    const began = process.hrtime.bigint();
    this.#samples?.push({
      elapsedNs: began - this.beganNs,
      residentSetBytes: numberOf(this.#driver.residentSetBytes()),
      heldBytes: numberOf(this.#driver.heldBytes()),
      deviceUsedBytes: this.#deviceUsedBytes(),
    });
    this.#recordingNs += process.hrtime.bigint() - began;
  }

  /** Takes the last sample, outside the episode. */
  stop(): void {
    this.endedNs ??= process.hrtime.bigint();
    if (this.#holding) this.#driver.releaseRecording?.(recorderRoomBytes);
    this.#holding = false;
    if (this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
    const { recordingNs } = this;
    this.#sample();
    this.#recordingNs = recordingNs;
  }

  get recordingNs(): bigint {
    return this.#recordingNs;
  }

  get recordingBytes(): number {
    return (
      (this.#samples === null ? 0 : recorderRoomBytes) +
      this.#logits.flat().reduce((sum, { length }) => sum + length, 0)
    );
  }

  samples(): Sample[] {
    return this.#samples?.samples() ?? [];
  }

  /** Requests that gave a token or ended; an episode that was broken off has fewer than prompts. */
  requests(salt: Uint8Array, includeContent: boolean): RequestRecord[] {
    const started = this.#tokens.findLastIndex(
      (tokens, index) => tokens.length > 0 || this.#ends[index] !== null,
    );
    return this.#tokens.slice(0, started + 1).map((tokens, index) => {
      const end = this.#ends[index] ?? null;
      const text = (ns: bigint | null | undefined): string | null => (ns == null ? null : String(ns));
      return {
        promptTokens: this.#promptTokens[index]!,
        newTokens: tokens.length,
        finishReason: end?.finishReason ?? 'interrupted',
        tokenIdsDigest: saltedIdsDigest(tokens, salt),
        logitsDigests: this.#digests[index]!,
        ...(this.#logits[index]!.length === 0 ? {} : { logits: this.#logits[index]! }),
        prefillNs: text(end?.times.prefillNs),
        decodeNs: text(end?.times.decodeNs),
        totalNs: text(end?.times.totalNs),
        timeToFirstTokenNs: text(end?.times.timeToFirstTokenNs),
        decodeStepNs: end?.times.decodeStepNs.map(String) ?? [],
        ...(includeContent ? { content: { tokenIds: tokens } } : {}),
      };
    });
  }
}

function numberOf(bytes: bigint | null): number | null {
  return bytes === null ? null : Number(bytes);
}
