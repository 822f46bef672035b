import { Command } from '@commander-js/extra-typings';
import { exitCodes, InterruptedError, UsageError } from '../base/errors.js';
import { OpRecorder } from '../generate/op-recorder.js';
import { generateOptions } from '../generate/options.js';
import { openSession, planSession } from '../generate/session.js';
import { flags } from './flags.js';
import { LogitsFile } from './logits-file.js';
import { Progress } from './progress.js';
import { readPrompts } from './prompt-input.js';
import { runJson, runSummary } from './run-report.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';
import { TraceFile } from './trace-file.js';
import { checkReceiptFlags, writeRunReceipt } from './write-run-receipt.js';

function command() {
  return new Command('generate')
    .description('continue prompts, inside a byte budget, exactly')
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .addOption(flags.prompt())
    .addOption(flags.promptFile())
    .addOption(flags.prompts())
    .addOption(flags.promptIds())
    .addOption(flags.budget())
    .addOption(flags.policy())
    .addOption(flags.backend())
    .addOption(flags.kernels())
    .addOption(flags.threads())
    .addOption(flags.kv())
    .addOption(flags.ctxSize())
    .addOption(flags.prefillChunk())
    .addOption(flags.maxNewTokens())
    .addOption(flags.temperature())
    .addOption(flags.topK())
    .addOption(flags.topP())
    .addOption(flags.minP())
    .addOption(flags.seed())
    .addOption(flags.stop())
    .addOption(flags.ignoreEos())
    .addOption(flags.receipt())
    .addOption(flags.sign())
    .addOption(flags.includeContent())
    .addOption(flags.logits())
    .addOption(flags.trace())
    .addOption(flags.traceOps())
    .addOption(flags.json())
    .addOption(flags.quiet());
}

type GenerateFlags = ReturnType<ReturnType<typeof command>['opts']>;

/** `waybill generate`. */
export function generateCommand() {
  return command().action(runGenerate);
}

async function runGenerate(given: GenerateFlags): Promise<void> {
  const terminal = openTerminal(given);
  const progress = new Progress(terminal);
  const options = generateOptions(samplingOf(given));
  const keyPem = await checkReceiptFlags(given);
  const { directory, prompts } = await readPrompts(given, (...work) => progress.bytes(...work));
  const { signal, dispose } = interruption();
  const trace = given.trace === undefined ? null : new TraceFile(given.trace);
  const recorder = given.traceOps === undefined ? null : await OpRecorder.open(given.traceOps);
  try {
    const hooks = sessionHooks(terminal, progress, signal, trace);
    const longest = Math.max(...prompts.map((ids) => ids.length));
    const wanted = { contextPositions: longest + options.maxNewTokens - 1, clampContext: true };
    const plan = await planSession(
      {
        ...sessionOptionsOf({ ...given, model: directory, revision: undefined }),
        ...(given.ctxSize === undefined ? wanted : {}),
        slots: prompts.length,
      },
      hooks,
    );
    const session = await openSession(plan, hooks);
    progress.stop();
    const logits = given.logits === undefined ? null : new LogitsFile(given.logits, session.vocabSize);
    try {
      session.observer = recorder?.observer(() => session.ledger.pass) ?? null;
      const startedAt = new Date();
      const generation = session.generate(prompts, options, {
        signal,
        ...(logits === null ? {} : { onLogits: (request, _index, row) => logits.add(request, row) }),
      });
      const texts = new TextOutput(prompts.length, terminal.print);
      let failure: unknown = null;
      try {
        for await (const event of generation) texts.add(event.request, event.text);
      } catch (error) {
        failure = error;
      }
      texts.end();
      const { outcome } = generation;
      if (given.receipt !== undefined) {
        const facts = { outcome, options, startedAt, finishedAt: new Date() };
        await writeRunReceipt(session, facts, { ...given, receipt: given.receipt }, keyPem);
      }
      if (failure !== null && !(failure instanceof InterruptedError)) throw failure;
      await logits?.finish(prompts.length);
      if (terminal.json) terminal.printJson(runJson(session, outcome));
      terminal.note(runSummary(session, outcome));
      if (failure !== null) process.exitCode = exitCodes.interrupted;
    } finally {
      await logits?.discard();
      await session.close();
    }
  } finally {
    progress.stop();
    await recorder?.close();
    await trace?.close();
    dispose();
  }
}

function samplingOf(given: GenerateFlags): Parameters<typeof generateOptions>[0] {
  const { maxNewTokens, temperature, topK, topP, minP, stop } = given;
  if (given.seed !== undefined && temperature === 0) {
    throw new UsageError(
      'option-without-effect',
      'Cannot use --seed at temperature 0: greedy choice draws no random number; give a --temperature above 0',
    );
  }
  return {
    maxNewTokens,
    temperature,
    topK,
    topP,
    minP,
    stop,
    ...(given.seed === undefined ? {} : { seed: given.seed }),
    ignoreEos: given.ignoreEos === true,
  };
}

/** One prompt: text as it comes. Several: each text whole, under its number, at the end. */
class TextOutput {
  readonly #texts: string[];
  readonly #print: (text: string) => void;

  constructor(requests: number, print: (text: string) => void) {
    this.#texts = Array.from({ length: requests }, () => '');
    this.#print = print;
  }

  add(request: number, text: string): void {
    this.#texts[request] += text;
    if (this.#texts.length === 1) this.#print(text);
  }

  end(): void {
    if (this.#texts.length === 1) this.#print('\n');
    else for (const [index, text] of this.#texts.entries()) this.#print(`[${index}] ${text}\n`);
  }
}
