import { ExecutionError } from '../base/errors.js';
import type { ArmDriver, Episode, EpisodeListener, EpisodeUsage } from './arm-driver.js';
import { unknownArm } from './arm-driver.js';
import { type Answer, type CommandResult, parseAnswer } from './command-contract.js';
import { LineProcess } from './line-process.js';
import type { TrialRecord } from './record-format.js';

export interface CommandLaunch {
  readonly arm: string;
  /** Program and arguments, placeholders filled in. */
  readonly command: readonly string[];
  readonly directory: string;
  readonly timeoutMs: number | null;
}

/** Starts a program that is an arm and waits until it is ready. */
export async function openCommandArm(launch: CommandLaunch, signal: AbortSignal): Promise<ArmDriver> {
  const began = process.hrtime.bigint();
  const child = new LineProcess(launch.arm, launch.command, launch.directory);
  try {
    const answer = parseAnswer(await child.line(launch.timeoutMs, signal), launch.arm);
    if (answer.type === 'error') throw new ExecutionError(answer.code, answer.message, { arm: launch.arm });
    if (answer.type !== 'ready') throw unexpected(launch.arm, answer, 'ready');
    return new CommandDriver(launch, child, answer, process.hrtime.bigint() - began);
  } catch (error) {
    child.kill();
    await child.close();
    throw error;
  }
}

class CommandDriver implements ArmDriver {
  readonly setupNs: bigint;
  readonly setupMoved: Record<string, string> | null;
  readonly facts: TrialRecord['arm'];
  readonly #launch: CommandLaunch;
  readonly #child: LineProcess;
  #episodes = 0;

  constructor(launch: CommandLaunch, child: LineProcess, ready: Answer & { type: 'ready' }, setupNs: bigint) {
    this.#launch = launch;
    this.#child = child;
    this.setupNs = setupNs;
    this.setupMoved = ready.setupMoved ?? null;
    this.facts = { ...unknownArm, ...given(ready.arm ?? {}) };
  }

  get processId(): number | null {
    return this.#child.pid;
  }

  residentSetBytes(): bigint | null {
    return this.#child.memoryBytes('VmRSS');
  }

  heldBytes(): null {
    return null;
  }

  async runEpisode(episode: Episode, listener: EpisodeListener, signal: AbortSignal): Promise<EpisodeUsage> {
    const id = ++this.#episodes;
    const seen: number[] = episode.prompts.map(() => 0);
    listener.begin();
    this.#child.send({
      type: 'episode',
      id,
      newTokens: episode.newTokens,
      ...(episode.keepLogits ? { logits: true } : {}),
      requests: episode.prompts.map((promptIds) => ({ promptIds })),
    });
    for (;;) {
      const answer = parseAnswer(await this.#child.line(this.#launch.timeoutMs, signal), this.#launch.arm);
      if (answer.type === 'error')
        throw new ExecutionError(answer.code, answer.message, { arm: this.#launch.arm });
      if (answer.type === 'ready' || answer.id !== id)
        throw unexpected(this.#launch.arm, answer, `answers to episode ${id}`);
      if (answer.type === 'token') {
        if (seen[answer.request] === undefined)
          throw unexpected(this.#launch.arm, answer, 'a request of the episode');
        seen[answer.request]!++;
        listener.token(answer.request, answer.tokenId, answer.logitsDigest ?? null, answer.logits ?? null);
        continue;
      }
      listener.end();
      return this.#finish(answer, episode, seen, listener);
    }
  }

  #finish(
    { requests, bytes, peaks }: CommandResult,
    episode: Episode,
    seen: readonly number[],
    listener: EpisodeListener,
  ): EpisodeUsage {
    if (requests.length !== episode.prompts.length) {
      throw new ExecutionError(
        'command-contract',
        `Cannot use the result of arm "${this.#launch.arm}": it has ${requests.length} requests, want ${episode.prompts.length}`,
      );
    }
    for (const [index, request] of requests.entries()) {
      const digests = request.logitsDigests ?? [];
      if (digests.length > 0 && digests.length !== request.tokenIds.length) {
        throw new ExecutionError(
          'command-contract',
          `Cannot use the result of arm "${this.#launch.arm}": request ${index} has ${request.tokenIds.length} tokens and ${digests.length} logits digests`,
        );
      }
      request.tokenIds.slice(seen[index]).forEach((tokenId, offset) => {
        const place = seen[index]! + offset;
        listener.token(index, tokenId, digests[place] ?? null, request.logits?.[place] ?? null);
      });
      listener.requestEnd(index, request.finishReason ?? 'unknown', {
        prefillNs: integer(request.prefillNs),
        decodeNs: integer(request.decodeNs),
        totalNs: integer(request.totalNs),
        timeToFirstTokenNs: integer(request.timeToFirstTokenNs),
        decodeStepNs: (request.decodeStepNs ?? []).map(BigInt),
      });
    }
    return {
      moved: bytes?.moved ?? null,
      movedRows: bytes?.movedRows ?? null,
      deviceRead: bytes?.deviceRead ?? null,
      peaks: {
        heldBytes: peaks?.heldBytes ?? null,
        heldByCause: peaks?.heldByCause ?? null,
        residentSetBytes: peaks?.residentSetBytes ?? this.#child.memoryBytes('VmHWM')?.toString() ?? null,
        deviceUsedBytes: peaks?.deviceUsedBytes ?? null,
        pinnedBytes: peaks?.pinnedBytes ?? null,
      },
    };
  }

  async close(): Promise<{ heldBytes: bigint; children: number }> {
    await this.#child.close();
    return { heldBytes: 0n, children: this.#child.running ? 1 : 0 };
  }
}

function unexpected(arm: string, answer: Answer, wanted: string): ExecutionError {
  const text = answer.type === 'error' ? `the error "${answer.message}"` : `"${answer.type}"`;
  return new ExecutionError(
    'command-contract',
    `Cannot go on with arm "${arm}": it wrote ${text}, want ${wanted}`,
    { arm },
  );
}

function integer(text: string | undefined): bigint | null {
  return text === undefined ? null : BigInt(text);
}

function given<T extends object>(value: T): { [K in keyof T]-?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as never;
}
