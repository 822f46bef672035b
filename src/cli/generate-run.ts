import { exitCodes, InterruptedError } from '../base/errors.js';
import { checkPrompts } from '../generate/generation.js';
import { OpRecorder } from '../generate/op-recorder.js';
import type { GenerateOptions } from '../generate/options.js';
import type { GenerationOutcome } from '../generate/outcome.js';
import { checkRestored, type RestoreCheck } from '../generate/restore-check.js';
import { closePlan, openSession, planSession, type Session, type SessionPlan } from '../generate/session.js';
import type { SessionHooks } from '../generate/session-options.js';
import { raiseExitCode } from './exit-code.js';
import type { GenerateFlags } from './generate-command.js';
import { LogitsFile } from './logits-file.js';
import type { Progress } from './progress.js';
import type { PromptInput } from './prompt-input.js';
import { restoreText, runJson, runSummary } from './run-report.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import type { Terminal } from './terminal.js';
import { TextOutput } from './text-output.js';
import { TraceFile } from './trace-file.js';
import { writeRunReceipt } from './write-run-receipt.js';

/** What `generate` has made of its flags before a model is opened. */
export interface GenerateJob {
  readonly given: GenerateFlags;
  readonly options: GenerateOptions;
  readonly input: PromptInput;
  readonly keyPem: string | null;
  readonly terminal: Terminal;
  readonly progress: Progress;
}

/** Plans, opens, generates, writes what was asked for. Files are opened only once the plan stands. */
export async function runGenerate(job: GenerateJob): Promise<void> {
  const { given, terminal, progress } = job;
  const { signal, dispose } = interruption();
  let trace: TraceFile | null = null;
  let recorder: OpRecorder | null = null;
  try {
    const hooks = sessionHooks(terminal, progress, signal, null);
    const plan = await planJob(job, hooks);
    try {
      trace = given.trace === undefined ? null : new TraceFile(given.trace);
      recorder = given.traceOps === undefined ? null : await OpRecorder.open(given.traceOps);
    } catch (error) {
      await closePlan(plan);
      throw error;
    }
    const session = await openSession(plan, sessionHooks(terminal, progress, signal, trace));
    progress.stop();
    try {
      session.observer = recorder?.observer(() => session.ledger.pass) ?? null;
      await generate(job, session, signal, async () => {
        await recorder?.close();
        await trace?.close();
      });
    } finally {
      await session.close();
    }
  } finally {
    progress.stop();
    await recorder?.close();
    await trace?.close();
    dispose();
  }
}

async function planJob(
  { given, options, input, terminal }: GenerateJob,
  hooks: SessionHooks,
): Promise<SessionPlan> {
  const { directory, prompts } = input;
  const longest = Math.max(...prompts.map((ids) => ids.length));
  const wanted = Math.min(longest + options.maxNewTokens - 1, Number.MAX_SAFE_INTEGER);
  const plan = await planSession(
    {
      ...sessionOptionsOf({ ...given, model: directory, revision: undefined }),
      ...(given.ctxSize === undefined ? { contextPositions: wanted, clampContext: true } : {}),
      slots: prompts.length,
    },
    hooks,
  );
  try {
    const { capacity } = plan.kvShape;
    checkPrompts(prompts, { capacity, vocabSize: plan.prepared.description.config.vocabSize });
    if (wanted > capacity) {
      terminal.note(
        `note: the context of ${capacity} positions ends before ${options.maxNewTokens} new tokens are reached`,
      );
    }
    return plan;
  } catch (error) {
    await closePlan(plan);
    throw error;
  }
}

async function generate(
  { given, options, input: { prompts }, keyPem, terminal }: GenerateJob,
  session: Session,
  signal: AbortSignal,
  closeRecords: () => Promise<void>,
): Promise<void> {
  const logits = given.logits === undefined ? null : new LogitsFile(given.logits, session.vocabSize);
  try {
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
    const { outcome } = generation;
    texts.end(outcome.requests.map(({ text }) => text));
    if (given.receipt !== undefined) {
      const facts = { outcome, options, startedAt, finishedAt: new Date() };
      await writeRunReceipt(session, facts, { ...given, receipt: given.receipt }, keyPem);
    }
    if (failure !== null && !(failure instanceof InterruptedError)) throw failure;
    await logits?.finish(prompts.length);
    await closeRecords();
    const restored =
      given.restoreCheck === true && failure === null
        ? await restore(session, outcome, options, signal)
        : null;
    // The one object comes last: whatever fails before is told in its place
    if (terminal.json) terminal.printJson(runJson(session, outcome, restored));
    terminal.note(runSummary(session, outcome));
    if (restored !== null) {
      terminal.note(restoreText(restored));
      if (restored.difference !== null) raiseExitCode(exitCodes.gateFailed);
    }
    if (failure !== null) raiseExitCode(exitCodes.interrupted);
  } finally {
    await logits?.discard();
  }
}

/** Closes the session first: what it holds need not fit beside the whole model. */
async function restore(
  session: Session,
  { requests }: GenerationOutcome,
  options: GenerateOptions,
  signal: AbortSignal,
): Promise<RestoreCheck> {
  await session.close();
  return checkRestored(session.plan.options, requests, options, { signal });
}
