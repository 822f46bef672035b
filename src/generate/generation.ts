import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { DefectError, InterruptedError, UsageError } from '../base/errors.js';
import { differenceOf, type LedgerTotals } from '../memory/ledger.js';
import { processUsage } from '../memory/process-usage.js';
import type { BatchRow } from '../model/batch.js';
import type { Engine } from './engine.js';
import { forward } from './forward.js';
import type { LogitsDigest, LogitsRow } from './logits-row.js';
import { type GenerateOptions, generateOptions } from './options.js';
import type { GenerationOutcome, GenerationTimes, TokenEvent } from './outcome.js';
import { RequestState } from './request-state.js';
import { sampleToken } from './sampler.js';

/** What a caller may watch beside the tokens. */
export interface GenerationHooks {
  readonly signal?: AbortSignal;
  /** Receives the logits row that chose each token, before temperature; the row is the callee's to keep. */
  readonly onLogits?: (request: number, index: number, logits: Float32Array) => void;
}

/**
 * A batch of prompts being continued. Iterate it once for the tokens as they come; afterwards `outcome` holds the
 * whole. An abort ends the iteration with `InterruptedError`; `outcome` is there all the same.
 */
export class Generation implements AsyncIterable<TokenEvent> {
  readonly #engine: Engine;
  readonly #options: GenerateOptions;
  readonly #hooks: GenerationHooks;
  readonly #prompts: readonly (readonly number[])[];
  #outcome: GenerationOutcome | null = null;
  #started = false;

  constructor(
    engine: Engine,
    prompts: readonly (readonly number[])[],
    options: Partial<GenerateOptions> = {},
    hooks: GenerationHooks = {},
  ) {
    this.#engine = engine;
    this.#options = generateOptions(options);
    this.#hooks = hooks;
    this.#prompts = prompts;
    if (prompts.length === 0)
      throw new UsageError('no-prompt', 'Cannot generate: there are 0 prompts, want at least 1');
    if (prompts.length > engine.kv.slots) {
      throw new UsageError(
        'batch-too-large',
        `Cannot generate from ${prompts.length} prompts at once: the KV cache has ${engine.kv.slots} slots`,
        { prompts: prompts.length, slots: engine.kv.slots },
      );
    }
    checkPrompts(prompts, engine);
    if (this.#options.stop.length > 0 && engine.tokenizer === null) {
      throw new UsageError(
        'stop-without-tokenizer',
        'Cannot use stop strings: the checkpoint has no tokenizer',
      );
    }
  }

  get outcome(): GenerationOutcome {
    if (this.#outcome === null)
      throw new DefectError('Cannot give the outcome of a generation that has not ended');
    return this.#outcome;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TokenEvent, void, undefined> {
    if (this.#started)
      throw new UsageError('generation-reused', 'Cannot iterate a generation twice: start a new one');
    this.#started = true;
    const run = new Run(this.#engine, this.#prompts, this.#options, this.#hooks);
    let status: GenerationOutcome['status'] = 'failed';
    try {
      yield* run.prefill();
      yield* run.decode();
      await this.#engine.backend.deviceWatch?.check();
      status = 'completed';
    } catch (error) {
      if (error instanceof InterruptedError) status = 'interrupted';
      throw error;
    } finally {
      // A consumer that leaves its loop early lands here without an error
      if (status === 'failed' && run.interruptedByConsumer) status = 'interrupted';
      this.#outcome = run.finish(status);
    }
  }
}

/** The mutable part of a generation. */
class Run {
  readonly #engine: Engine;
  readonly #options: GenerateOptions;
  readonly #hooks: GenerationHooks;
  readonly #requests: RequestState[];
  readonly #began = process.hrtime.bigint();
  readonly #before: LedgerTotals;
  readonly #deviceReadBefore: number | null;
  readonly #stepsNs: bigint[] = [];
  #prefillEnd: bigint | null = null;
  #firstTokenNs: bigint | null = null;
  #prefillPasses = 0;
  #yielding = false;
  /** Of tokens that were chosen last: computed while the next pass runs. */
  #digests: LogitsDigest[] = [];
  readonly #endTurn: () => void;
  readonly #episode: number;

  constructor(
    engine: Engine,
    prompts: readonly (readonly number[])[],
    options: GenerateOptions,
    hooks: GenerationHooks,
  ) {
    this.#engine = engine;
    this.#options = options;
    this.#hooks = hooks;
    this.#before = engine.ledger.totals();
    this.#deviceReadBefore = processUsage().deviceReadBytes;
    this.#endTurn = engine.turn.take('generate');
    this.#episode = engine.turn.taken;
    let slots: readonly number[];
    try {
      slots = engine.kv.claim(prompts.length);
    } catch (error) {
      this.#endTurn();
      throw error;
    }
    this.#requests = prompts.map(
      (promptTokenIds, index) =>
        new RequestState({
          index,
          slot: slots[index]!,
          promptTokenIds,
          options,
          eosTokenIds: engine.eosTokenIds,
          capacity: engine.capacity,
          tokenizer: engine.tokenizer,
        }),
    );
  }

  get interruptedByConsumer(): boolean {
    return this.#yielding;
  }

  /** Feeds all prompts in chunks, several requests a pass where they fit. */
  async *prefill(): AsyncGenerator<TokenEvent, void, undefined> {
    const rows = this.#requests.flatMap((request) =>
      request.promptTokenIds.map((tokenId, position) => ({
        request,
        row: { slot: request.slot, position, tokenId } satisfies BatchRow,
        last: position === request.promptTokenIds.length - 1,
      })),
    );
    const { prefillChunk, maxLogitsRows } = this.#engine;
    for (let begin = 0; begin < rows.length; ) {
      await this.#checkSignal();
      let end = begin;
      let wanted = 0;
      while (end < rows.length && end - begin < prefillChunk) {
        if (rows[end]!.last && wanted++ === maxLogitsRows) break;
        end++;
      }
      const chunk = rows.slice(begin, end);
      const choosing = chunk.filter(({ last }) => last).map(({ request }) => request);
      const logits = await forward(
        this.#engine,
        {
          kind: 'prefill',
          rows: chunk.map(({ row }) => row),
          logitsRows: chunk.flatMap(({ last }, index) => (last ? [index] : [])),
        },
        end < rows.length ? 'prefill' : this.#decodeExpected(),
        this.#digest,
      );
      this.#prefillPasses++;
      if (end === rows.length) this.#prefillEnd = process.hrtime.bigint();
      yield* this.#choose(choosing, logits);
      begin = end;
    }
  }

  /** One token a request and pass, until every request has ended. */
  async *decode(): AsyncGenerator<TokenEvent, void, undefined> {
    for (;;) {
      const active = this.#requests.filter((request) => !request.finished);
      if (active.length === 0) return;
      await this.#checkSignal();
      const stepBegan = process.hrtime.bigint();
      const logits = await forward(
        this.#engine,
        {
          kind: 'decode',
          rows: active.map((request) => ({ slot: request.slot, ...request.next })),
          logitsRows: active.map((_, index) => index),
        },
        this.#decodeExpected(),
        this.#digest,
      );
      this.#stepsNs.push(process.hrtime.bigint() - stepBegan);
      yield* this.#choose(active, logits);
    }
  }

  readonly #digest = (): void => {
    for (const digest of this.#digests.splice(0)) void digest.hex;
  };

  /** Whether a pass of new tokens must follow the running one, as far as is known before its tokens are chosen. */
  #decodeExpected(): 'decode' | null {
    return this.#requests.some((request) => !request.finished && !request.atLastToken) ? 'decode' : null;
  }

  *#choose(
    requests: readonly RequestState[],
    rows: readonly LogitsRow[],
  ): Generator<TokenEvent, void, undefined> {
    for (const [index, request] of requests.entries()) {
      const row = rows[index]!;
      const { greedyId, digest } = row;
      const greedy = this.#options.temperature === 0;
      const tokenId = greedy
        ? greedyId
        : sampleToken(row.logits, request.choosingPosition, this.#options, greedyId);
      this.#digests.push(digest);
      const elapsedNs = process.hrtime.bigint() - this.#began;
      this.#firstTokenNs ??= elapsedNs;
      const event = request.accept(tokenId, digest, elapsedNs);
      if (this.#hooks.onLogits !== undefined) {
        this.#digest(); // before the row is somebody else's
        this.#hooks.onLogits(request.index, event.index, row.logits);
      }
      this.#yielding = true;
      yield event;
      this.#yielding = false;
    }
  }

  /** Lets signals and timers in first: a backend that computes in this thread never waits for anything. */
  async #checkSignal(): Promise<void> {
    await eventLoopTurn();
    if (this.#hooks.signal?.aborted === true) {
      throw new InterruptedError('interrupted', 'Stopped generating: the run was aborted');
    }
  }

  finish(status: GenerationOutcome['status']): GenerationOutcome {
    for (const request of this.#requests) {
      request.interrupt();
      this.#engine.kv.release(request.slot);
    }
    this.#endTurn();
    const after = processUsage().deviceReadBytes;
    return {
      status,
      requests: this.#requests.map((request) => request.outcome()),
      times: this.#times(),
      bytes: differenceOf(this.#engine.ledger.totals(), this.#before),
      prefillPasses: this.#prefillPasses,
      decodePasses: this.#stepsNs.length,
      deviceReadBytes:
        after === null || this.#deviceReadBefore === null ? null : after - this.#deviceReadBefore,
    };
  }

  #times(): GenerationTimes {
    const ended = process.hrtime.bigint();
    const prefillEnd = this.#prefillEnd ?? ended;
    return {
      episode: this.#episode,
      prefillNs: prefillEnd - this.#began,
      decodeNs: ended - prefillEnd,
      totalNs: ended - this.#began,
      timeToFirstTokenNs: this.#firstTokenNs,
      decodeStepNs: this.#stepsNs,
    };
  }
}

/**
 * Refuses prompts that cannot be continued; also for a session that is only planned.
 * @throws UsageError `empty-prompt`, `prompt-too-long` with both numbers, `bad-token-id`
 */
export function checkPrompts(
  prompts: readonly (readonly number[])[],
  limits: { readonly capacity: number; readonly vocabSize: number },
): void {
  for (const [index, ids] of prompts.entries()) checkPrompt(ids, index, limits);
}

function checkPrompt(
  ids: readonly number[],
  index: number,
  engine: { readonly capacity: number; readonly vocabSize: number },
): void {
  const name = `prompt ${index}`;
  if (ids.length === 0) {
    throw new UsageError('empty-prompt', `Cannot generate from ${name}: it has 0 tokens, want at least 1`, {
      index,
    });
  }
  if (ids.length > engine.capacity) {
    throw new UsageError(
      'prompt-too-long',
      `Cannot generate from ${name}: it has ${ids.length} tokens, the context holds ${engine.capacity} positions`,
      { index, tokens: ids.length, positions: engine.capacity },
    );
  }
  for (const id of ids) {
    if (Number.isSafeInteger(id) && id >= 0 && id < engine.vocabSize) continue;
    throw new UsageError(
      'bad-token-id',
      `Cannot generate from ${name}: token id ${id} is outside the vocabulary of 0 to ${engine.vocabSize - 1}`,
      { index, id, vocabSize: engine.vocabSize },
    );
  }
}
