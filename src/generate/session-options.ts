import { availableParallelism } from 'node:os';
import { type ForecastTiming, forecastTimings, type Guesser, guessers } from '../acquire/forecast-way.js';
import type { LinkRates } from '../acquire/placement.js';
import { type StreamLayout, streamLayouts } from '../acquire/plan.js';
import { type PolicyName, policyNames } from '../acquire/policy.js';
import { parseRetain, retainForms } from '../acquire/retain-rows.js';
import type { Backend } from '../backend/backend.js';
import {
  type BackendName,
  backendNames,
  type KernelChoice,
  kernelChoices,
  type NumericsMode,
  numericsModes,
} from '../backend/open.js';
import { UsageError } from '../base/errors.js';
import { lowBitNames } from '../checkpoint/low-bit.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import type { TraceSink } from '../memory/trace.js';
import { checkRecord, givenOptions, shownValue } from './given-options.js';
import { impliedBackend } from './implied-backend.js';

/** How a model is opened. One record, frozen, that goes into the receipt. */
export interface SessionOptions {
  /** Checkpoint folder, or a Hugging Face hub id. */
  readonly model: string;
  readonly revision: string | null;
  /** Where the prepared form lies or shall lie; null: below the Hugging Face home. */
  readonly prepared: string | null;
  /**
   * `auto`: a GPU where one can be set up and holds the plan, else the CPU. Left open it is what other options are for: `cpu` where
   * `kernels` or `threads` are given, `cuda` where `device`, `hostBudgetBytes`, native numerics or a strided stream are.
   */
  readonly backend: BackendName;
  readonly kernels: KernelChoice;
  /** `native`: prompts on a GPU's tensor cores, deterministic there, with other bits than `portable`. */
  readonly numerics: NumericsMode;
  readonly threads: number;
  /** Which GPU, from 0 among those that the driver shows; the other backends have no use for it. */
  readonly device: number;
  /** Most bytes that the session may hold; `Infinity`: no limit. */
  readonly budgetBytes: number;
  /** Most bytes of page-locked host memory for what is not on the device; only backends with a device use it. */
  readonly hostBudgetBytes: number;
  /** `auto`, the default: the exact policy that is expected to be the fastest for new tokens. */
  readonly policy: PolicyName | 'auto';
  /** Of policy `retention`: `lru:<rows a layer>` or `hot:auto`; null: 1,024 rows used last. */
  readonly retain: string | null;
  /** File of a recorded activation profile (`waybill profile`); null: none. */
  readonly profile: string | null;
  /** Of policy `forecast`: when guesses are fetched. */
  readonly forecast: ForecastTiming;
  /** Of policy `forecast`: what guesses are made from; `residual` needs a profile with tables for it. */
  readonly guesser: Guesser;
  /** Of policy `certified`: format of its low-bit copies, or the name of copies that a profile wrote; null: the default. */
  readonly lowBit: string | null;
  /** Of policy `stream` on a GPU: `strided` rearranges the checkpoint's own layout on the way (a control). */
  readonly streamLayout: StreamLayout;
  readonly kv: 'f16' | 'f32';
  /** Positions of a sequence; null: all that the model knows. */
  readonly contextPositions: number | null;
  /** Take the model's positions where `contextPositions` is more, instead of refusing. */
  readonly clampContext: boolean;
  /** Sequences that can be under way at once. */
  readonly slots: number;
  /** Prompt tokens of one pass. */
  readonly prefillChunk: number;
  /** Logits rows of one pass: `slots` for generation, more to score texts. */
  readonly logitsRows: number;
}

/** What may be watched while a session opens and runs; no part of a receipt. */
export interface SessionHooks {
  /** `label` names the work: downloading, preparing, loading. */
  readonly onProgress?: (label: string, doneBytes: number, totalBytes: number) => void;
  /** Said once to a person: notes of the checkpoint, non-finite weights. */
  readonly onNote?: (text: string) => void;
  readonly onMove?: TraceSink;
  /** Asked while planning for the rates that a prediction of speed rests on; without it there is none. */
  readonly measureLink?: (prepared: PreparedModel, backend: Backend) => Promise<LinkRates>;
  readonly signal?: AbortSignal;
}

/**
 * Fills in defaults and checks ranges.
 * @throws UsageError `bad-option` that names the option, its value and what is wanted
 */
export function sessionOptions(given: Partial<SessionOptions> & { model: string }): SessionOptions {
  checkRecord(given, '{ model: "models/opt" }');
  const slots = given.slots ?? 1;
  const defaults = {
    revision: null,
    prepared: null,
    backend: given.backend === undefined ? impliedBackend(given) : 'auto',
    kernels: 'auto',
    numerics: 'portable',
    threads: availableParallelism(),
    device: 0,
    budgetBytes: Infinity,
    hostBudgetBytes: Infinity,
    policy: 'auto',
    retain: null,
    profile: null,
    forecast: 'early',
    guesser: 'previous',
    lowBit: null,
    streamLayout: 'packed',
    kv: 'f16',
    contextPositions: null,
    clampContext: false,
    prefillChunk: 128,
    logitsRows: slots,
    slots,
  } satisfies Omit<SessionOptions, 'model'>;
  const known = ['model', ...Object.keys(defaults)];
  const options: SessionOptions = { ...defaults, ...givenOptions(given, known) };
  const check = (name: keyof SessionOptions, holds: boolean, wanted: string): void => {
    if (holds) return;
    throw new UsageError('bad-option', `Cannot use "${name}" ${shownValue(options[name])}: want ${wanted}`, {
      option: name,
      value: String(options[name]),
    });
  };
  const oneOf = (name: keyof SessionOptions, names: readonly string[]): void =>
    check(
      name,
      names.some((known) => known === options[name]),
      `one of ${names.join(', ')}`,
    );
  check('model', typeof options.model === 'string', 'the folder of a checkpoint, or a hub id');
  for (const name of ['revision', 'prepared', 'profile'] as const) {
    check(name, options[name] === null || typeof options[name] === 'string', 'text, or null for none');
  }
  oneOf('backend', backendNames);
  oneOf('kernels', kernelChoices);
  oneOf('numerics', numericsModes);
  oneOf('policy', [...policyNames, 'auto']);
  oneOf('kv', ['f16', 'f32']);
  oneOf('forecast', forecastTimings);
  oneOf('guesser', guessers);
  oneOf('streamLayout', streamLayouts);
  check(
    'lowBit',
    options.lowBit === null || /^[a-z0-9][a-z0-9-]{0,63}$/.test(options.lowBit),
    `one of ${lowBitNames.join(', ')}, a name that "waybill profile" has written, or null for the default`,
  );
  const { retain } = options;
  check('retain', retain === null || parseRetain(retain) !== null, retainForms);
  if (retain === 'hot:auto' && options.profile === null) {
    throw new UsageError(
      'profile-needed',
      'Cannot choose a hot set without a profile: record one with "waybill profile" and give it with --profile',
      { retain },
    );
  }
  for (const name of ['threads', 'slots', 'prefillChunk', 'logitsRows'] as const) {
    check(name, Number.isSafeInteger(options[name]) && options[name] >= 1, 'an integer of at least 1');
  }
  check('device', Number.isSafeInteger(options.device) && options.device >= 0, 'a GPU number, from 0');
  const { hostBudgetBytes } = options;
  check(
    'hostBudgetBytes',
    hostBudgetBytes === Infinity || (Number.isSafeInteger(hostBudgetBytes) && hostBudgetBytes >= 0),
    'a number of bytes',
  );
  const { contextPositions } = options;
  check(
    'contextPositions',
    contextPositions === null || (Number.isSafeInteger(contextPositions) && contextPositions >= 1),
    'an integer of at least 1',
  );
  return Object.freeze(options);
}
