import type { PolicyName } from '../acquire/policy.js';
import { policyNames } from '../acquire/policy.js';
import { UsageError } from '../base/errors.js';
import { impliedBackend } from '../generate/implied-backend.js';
import type { SessionHooks, SessionOptions } from '../generate/session-options.js';
import type { Progress } from './progress.js';
import type { Terminal } from './terminal.js';
import type { TraceFile } from './trace-file.js';

/** What the flags of `flags.ts` that concern a session come to. */
export interface SessionFlags {
  readonly model: string;
  readonly revision?: string | undefined;
  readonly prepared?: string | undefined;
  readonly budget?: number | undefined;
  readonly policy?: string | undefined;
  readonly retain?: string | undefined;
  readonly profile?: string | undefined;
  readonly forecast?: SessionOptions['forecast'] | undefined;
  readonly guesser?: SessionOptions['guesser'] | undefined;
  readonly lowBit?: SessionOptions['lowBit'] | undefined;
  readonly streamLayout?: SessionOptions['streamLayout'] | undefined;
  readonly backend: SessionOptions['backend'];
  readonly kernels: SessionOptions['kernels'];
  readonly numerics?: SessionOptions['numerics'] | undefined;
  readonly threads?: number | undefined;
  readonly device?: number | undefined;
  readonly hostBudget?: number | undefined;
  readonly kv: SessionOptions['kv'];
  readonly ctxSize?: number | undefined;
  readonly prefillChunk: number;
}

/** The session options that flags ask for; `policy` stands where the flag was not given. */
export function sessionOptionsOf(
  given: SessionFlags,
  policy: PolicyName | 'auto' = 'auto',
): Partial<SessionOptions> & { model: string } {
  const backend = given.backend === 'auto' ? impliedByFlags(given) : given.backend;
  requireUsedBy(backend, given);
  const chosen = policyOf(given.policy, policy);
  requireEffect('--retain', given.retain, 'retention', chosen);
  requireEffect('--forecast', given.forecast, 'forecast', chosen);
  requireEffect('--guesser', given.guesser, 'forecast', chosen);
  requireEffect('--low-bit', given.lowBit ?? undefined, 'certified', chosen);
  return {
    model: given.model,
    revision: given.revision ?? null,
    prepared: given.prepared ?? null,
    budgetBytes: given.budget ?? Infinity,
    policy: chosen,
    retain: given.retain ?? null,
    profile: given.profile ?? null,
    ...(given.forecast === undefined ? {} : { forecast: given.forecast }),
    ...(given.guesser === undefined ? {} : { guesser: given.guesser }),
    ...(given.lowBit === undefined ? {} : { lowBit: given.lowBit }),
    ...(given.streamLayout === undefined ? {} : { streamLayout: given.streamLayout }),
    backend,
    kernels: given.kernels,
    ...(given.numerics === undefined ? {} : { numerics: given.numerics }),
    ...(given.threads === undefined ? {} : { threads: given.threads }),
    ...(given.device === undefined ? {} : { device: given.device }),
    ...(given.hostBudget === undefined ? {} : { hostBudgetBytes: given.hostBudget }),
    kv: given.kv,
    contextPositions: given.ctxSize ?? null,
    prefillChunk: given.prefillChunk,
  };
}

/** Flags that one backend alone has a use for say which one is meant. */
function impliedByFlags({ hostBudget, ...given }: SessionFlags): SessionOptions['backend'] {
  return impliedBackend(
    {
      kernels: given.kernels,
      ...(given.threads === undefined ? {} : { threads: given.threads }),
      ...(given.device === undefined ? {} : { device: given.device }),
      ...(hostBudget === undefined ? {} : { hostBudgetBytes: hostBudget }),
      ...(given.numerics === undefined ? {} : { numerics: given.numerics }),
      ...(given.streamLayout === undefined ? {} : { streamLayout: given.streamLayout }),
    },
    {
      kernels: '--kernels',
      threads: '--threads',
      device: '--device',
      hostBudgetBytes: '--host-budget',
      numerics: '--numerics native',
      streamLayout: '--stream-layout strided',
    },
  );
}

/** A flag that the backend has no use for would be ignored. */
function requireUsedBy(backend: SessionOptions['backend'], given: SessionFlags): void {
  const { kernels, threads, device, hostBudget } = given;
  const useless = (flag: string, reason: string): UsageError =>
    new UsageError('option-without-effect', `Cannot use ${flag} with --backend ${backend}: ${reason}`);
  if (kernels !== 'auto' && backend !== 'cpu')
    throw useless(`--kernels ${kernels}`, 'only the cpu backend has a choice of kernels');
  if (threads !== undefined && backend === 'oracle')
    throw useless('--threads', 'the oracle computes in one thread');
  if (threads !== undefined && backend === 'cuda') throw useless('--threads', 'the GPU decides its own');
  for (const [flag, value] of [
    ['--device', device],
    ['--host-budget', hostBudget],
  ] as const) {
    if (value !== undefined && backend !== 'cuda')
      throw useless(flag, 'only the cuda backend has a use for it');
  }
}

function requireEffect(
  flag: string,
  value: string | undefined,
  owner: PolicyName,
  policy: PolicyName | 'auto',
): void {
  if (value === undefined || policy === owner) return;
  throw new UsageError(
    'option-without-effect',
    `Cannot use ${flag} ${value} with policy "${policy}": only policy "${owner}" has a use for it`,
    { policy },
  );
}

function policyOf(text: string | undefined, fallback: PolicyName | 'auto'): PolicyName | 'auto' {
  if (text === undefined) return fallback;
  const known = ([...policyNames, 'auto'] as const).find((name) => name === text);
  if (known !== undefined) return known;
  throw new UsageError(
    'unknown-policy',
    `Cannot use policy "${text}": want one of ${policyNames.join(', ')}, auto`,
    {
      policy: text,
    },
  );
}

/** Hooks that show a session's progress and notes on the terminal, and its moves in `--trace`. */
export function sessionHooks(
  terminal: Terminal,
  progress: Progress,
  signal: AbortSignal,
  trace: TraceFile | null,
): SessionHooks {
  return {
    signal,
    onProgress: (label, done, total) => progress.bytes(label, done, total),
    onNote: (text) => terminal.note(`note: ${text}`),
    ...(trace === null ? {} : { onMove: trace.sink }),
  };
}
