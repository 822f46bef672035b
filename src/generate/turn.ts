import { UsageError } from '../base/errors.js';

/**
 * Whose turn it is on an engine. Its workspace, its counters and the order of its reads belong to one generation or
 * score at a time; several prompts at once are a batch, not several generations.
 */
export class Turn {
  #holder: string | null = null;
  #running: Promise<unknown> = Promise.resolve();
  #closed = false;
  #taken = 0;

  /**
   * Takes the turn for `action` ("generate", "score") until the function that it returns is called.
   * @throws UsageError `session-busy`, `session-closed`
   */
  take(action: string): () => void {
    this.#requireOpen(action);
    if (this.#holder !== null) {
      throw new UsageError(
        'session-busy',
        `Cannot ${action}: the session is still busy with another "${this.#holder}"; end that first, or run both prompts as one batch`,
        { action, holder: this.#holder },
      );
    }
    this.#holder = action;
    this.#taken += 1;
    let taken = true;
    return () => {
      if (taken) this.#holder = null;
      taken = false;
    };
  }

  /** How often it was taken so far. */
  get taken(): number {
    return this.#taken;
  }

  /** Runs a pass; closing waits for it. */
  async pass<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#requireOpen('run a pass');
    const running = work();
    this.#running = running.catch(() => {}); // who asked for the pass hears of its failure
    return running;
  }

  /** Refuses what comes and waits for the pass that runs. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#running;
  }

  #requireOpen(action: string): void {
    if (this.#closed) throw new UsageError('session-closed', `Cannot ${action}: the session is closed`);
  }
}
