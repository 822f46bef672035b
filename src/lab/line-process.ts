import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { ExecutionError, InterruptedError, SetupError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { longestLine } from './command-contract.js';

/** How long a process may take to end once its input is closed. */
const graceMs = 10_000;
const keptErrorCharacters = 4096;

/** A child process that is spoken to in lines. Its last words on standard error go into the message when it fails. */
export class LineProcess {
  readonly #name: string;
  readonly #child: ChildProcess;
  readonly #exit: Promise<void>;
  readonly #lines: string[] = [];
  #partial = '';
  #wake: (() => void) | null = null;
  #ended: string | null = null;
  #errors = '';

  constructor(name: string, command: readonly string[], directory: string) {
    this.#name = name;
    const [program = '', ...args] = command;
    this.#child = spawn(program, args, {
      cwd: directory,
      stdio: ['pipe', 'pipe', 'pipe'],
      windowsHide: true,
    });
    this.#exit = new Promise((resolve) => {
      this.#child.once('error', (error) =>
        this.#end(`it could not be started: ${failureReason(error)}`, resolve),
      );
      this.#child.once('close', (code, signal) =>
        this.#end(signal === null ? `it ended with exit code ${code}` : `it was ended by ${signal}`, resolve),
      );
    });
    this.#child.stdin?.on('error', () => {}); // a process that ended is told of by `close`
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#errors = (this.#errors + text).slice(-keptErrorCharacters);
    });
  }

  get pid(): number | null {
    return this.#child.pid ?? null;
  }

  get running(): boolean {
    return this.#ended === null;
  }

  send(value: unknown): void {
    this.#child.stdin?.write(`${JSON.stringify(value)}\n`);
  }

  /**
   * The next line. @throws ExecutionError `command-ended`, `command-timeout`; SetupError `command-not-started`;
   * InterruptedError. After a timeout or an abort the process is killed.
   */
  async line(timeoutMs: number | null, signal: AbortSignal): Promise<string> {
    const deadline = timeoutMs === null ? Infinity : performance.now() + timeoutMs;
    for (;;) {
      const line = this.#lines.shift();
      if (line !== undefined) return line;
      if (this.#ended !== null) throw this.#failure();
      if (signal.aborted) {
        this.kill();
        throw new InterruptedError('interrupted', `Stopped arm "${this.#name}": the run was aborted`);
      }
      const left = deadline - performance.now();
      if (left <= 0) {
        this.kill();
        throw new ExecutionError(
          'command-timeout',
          `Cannot wait for arm "${this.#name}": it gave no answer within ${timeoutMs} ms`,
        );
      }
      await this.#news(left, signal);
    }
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  /** Closes its input and waits for its end. True where it had ended by itself in time. */
  async close(): Promise<boolean> {
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.kill(), graceMs);
    await this.#exit;
    clearTimeout(timer);
    return true;
  }

  /** `VmRSS` or, for the high-water mark, `VmHWM` (proc(5)); null where the system does not tell. */
  memoryBytes(field: 'VmRSS' | 'VmHWM'): bigint | null {
    if (process.platform !== 'linux' || this.pid === null) return null;
    try {
      const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(
        readFileSync(`/proc/${this.pid}/status`, 'utf8'),
      );
      return match === null ? null : BigInt(match[1]!) * 1024n;
    } catch {
      return null;
    }
  }

  #take(text: string): void {
    const parts = (this.#partial + text).split('\n');
    this.#partial = parts.pop()!;
    if (this.#partial.length > longestLine) this.kill();
    this.#lines.push(...parts.filter((line) => line.length > 0));
    this.#wake?.();
  }

  #end(reason: string, resolve: () => void): void {
    this.#ended ??= reason;
    this.#wake?.();
    resolve();
  }

  #failure(): Error {
    const words = this.#errors.trim().split('\n').slice(-3).join(' | ');
    const text = `Cannot run arm "${this.#name}": ${this.#ended}${words === '' ? '' : `; it said ${JSON.stringify(words)}`}`;
    return this.pid === null
      ? new SetupError('command-not-started', text)
      : new ExecutionError('command-ended', text);
  }

  /** Resolves at a line, an end, an abort or the timeout. */
  #news(timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const timer =
        timeoutMs === Infinity ? null : setTimeout(() => done(), Math.min(timeoutMs, 2 ** 31 - 1));
      const done = (): void => {
        if (timer !== null) clearTimeout(timer);
        signal.removeEventListener('abort', done);
        this.#wake = null;
        resolve();
      };
      this.#wake = done;
      signal.addEventListener('abort', done);
    });
  }
}
