import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { median } from './pass-times.js';

/** Another way to run the same sizes, by bench/rivals.py. */
export interface RivalTime {
  readonly rival: string;
  readonly msPerToken: number;
  readonly prefillMs: number;
  /** As torch counts it. */
  readonly peakDeviceBytes: number;
  readonly detail: string;
}

interface Answer {
  readonly prefillMs: number;
  readonly stepMs: readonly number[];
  readonly peakDeviceBytes: number;
}

const rivalNames = ['transformers', 'accelerate-offload'] as const;

/** A rival in a process of its own, which answers a line with a line. */
class Rival {
  readonly name: string;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;
  readonly #answers: Answer[] = [];
  #detail = '';

  constructor(name: string, python: string, checkpoint: string, deviceBytes: number) {
    this.name = name;
    const args = ['bench/rivals.py', '--checkpoint', checkpoint, '--rival', name];
    if (name !== 'transformers') args.push('--device-bytes', String(deviceBytes));
    this.#child = spawn(python, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child.stderr.pipe(process.stderr);
    this.#child.stdin.on('error', () => {}); // its end shows on the other side
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Waits until it is loaded; the reason where it cannot be. */
  async ready(): Promise<string | null> {
    const answer = await this.#next();
    if (answer === null) return 'it ended before it was ready';
    if (answer.error !== undefined) return String(answer.error);
    this.#detail = String(answer.ready);
    return null;
  }

  async run(promptTokens: number, newTokens: number): Promise<void> {
    this.#child.stdin.write(`${JSON.stringify({ promptTokens, newTokens })}\n`);
    const answer = await this.#next();
    if (answer === null || answer.error !== undefined) {
      throw new Error(`Cannot run the rival "${this.name}": ${answer?.error ?? 'it ended'}`);
    }
    this.#answers.push(answer as unknown as Answer);
  }

  time(): RivalTime {
    const warm = this.#answers.slice(this.#answers.length > 1 ? 1 : 0);
    return {
      rival: this.name,
      msPerToken: median(warm.flatMap(({ stepMs }) => stepMs)),
      prefillMs: median(warm.map(({ prefillMs }) => prefillMs)),
      peakDeviceBytes: Math.max(0, ...this.#answers.map(({ peakDeviceBytes }) => peakDeviceBytes)),
      detail: this.#detail,
    };
  }

  stop(): void {
    this.#child.stdin.end();
    this.#child.kill();
  }

  async #next(): Promise<Record<string, unknown> | null> {
    const failed = once(this.#child, 'error').then(([error]) => ({ error: String(error) }));
    const line = this.#lines.next().then(({ value, done }) => (done === true ? null : JSON.parse(value)));
    return Promise.race([line, failed]);
  }
}

/** All rivals, loaded beside our arms; they take turns with them. */
export class Rivals {
  readonly #rivals: readonly Rival[];

  private constructor(rivals: readonly Rival[]) {
    this.#rivals = rivals;
  }

  /** Rivals that cannot be loaded are named, and left out. */
  static async start(
    { checkpoint, python }: { readonly checkpoint: string; readonly python: string },
    deviceBytes: number,
    log: (line: string) => void,
  ): Promise<Rivals> {
    const started = rivalNames.map((name) => new Rival(name, python, checkpoint, deviceBytes));
    const loaded: Rival[] = [];
    for (const rival of started) {
      const problem = await rival.ready();
      if (problem === null) loaded.push(rival);
      else {
        log(`rival ${rival.name}: not run, ${problem}`);
        rival.stop();
      }
    }
    return new Rivals(loaded);
  }

  async round(promptTokens: number, newTokens: number): Promise<void> {
    for (const rival of this.#rivals) await rival.run(promptTokens, newTokens);
  }

  times(): RivalTime[] {
    return this.#rivals.map((rival) => rival.time());
  }

  stop(): void {
    for (const rival of this.#rivals) rival.stop();
  }
}
