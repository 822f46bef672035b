import { Option } from '@commander-js/extra-typings';
import { forecastTimings, guessers } from '../acquire/forecast-way.js';
import { streamLayouts } from '../acquire/plan.js';
import { policyNames } from '../acquire/policy.js';
import { retainForms } from '../acquire/retain-rows.js';
import { backendNames, numericsModes } from '../backend/open.js';
import { parseByteSize } from '../base/byte-size.js';
import { UsageError } from '../base/errors.js';
import { lowBitNames } from '../checkpoint/low-bit.js';
import { defaultLowBit } from '../checkpoint/low-bit-plan.js';

function badOption(flag: string, text: string, wanted: string): UsageError {
  return new UsageError('bad-option', `Cannot use ${flag} "${text}": want ${wanted}`, {
    option: flag,
    value: text,
  });
}

function integer(flag: string, least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= least) return value;
    throw badOption(flag, text, `an integer from ${least} to ${Number.MAX_SAFE_INTEGER}`);
  };
}

/** A decimal number for which `holds`, which `wanted` puts into words. */
function decimal(flag: string, holds: (value: number) => boolean, wanted: string): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+(\.\d+)?$/.test(text) && holds(value)) return value;
    throw badOption(flag, text, wanted);
  };
}

function oneOf<const Name extends string>(flag: string, names: readonly Name[]): (text: string) => Name {
  return (text) => {
    const known = names.find((name) => name === text);
    if (known !== undefined) return known;
    throw badOption(flag, text, `one of ${names.join(', ')}`);
  };
}

function stopTexts(text: string, earlier: readonly string[] = []): string[] {
  if (text === '') throw badOption('--stop', text, 'text that is not empty');
  return [...earlier, text];
}

/** The flags, each defined once; commands pick what can take effect in them. */
export const flags = {
  model: () =>
    new Option('-m, --model <folder|id>', 'checkpoint folder, or Hugging Face hub id').makeOptionMandatory(),
  revision: () => new Option('--revision <name>', 'hub revision (branch, tag or commit)'),
  prepared: () => new Option('--prepared <dir>', 'where the prepared form lies or shall lie'),
  prompt: () => new Option('-p, --prompt <text>', 'prompt text'),
  promptFile: () =>
    new Option('-f, --prompt-file <file>', 'file that holds the prompt, UTF-8 ("-": standard input)'),
  prompts: () => new Option('--prompts <file.jsonl>', 'prompts, one JSON line each, run as one batch'),
  promptIds: () => new Option('--prompt-ids <ids>', 'prompt as token ids, used as given: 2,100,524'),
  ctxSize: () =>
    new Option('-c, --ctx-size <positions>', 'positions that the KV cache holds a sequence').argParser(
      integer('--ctx-size', 1),
    ),
  budget: () =>
    new Option('--budget <bytes>', 'most bytes to hold: 4800MiB, 2GB, or a bare number of bytes').argParser(
      (text) => parseByteSize(text, '--budget'),
    ),
  policy: () =>
    new Option(
      '--policy <name>',
      `how second-projection weights come: ${policyNames.join(', ')}, or auto (default: auto, the exact one that is expected to be fastest)`,
    ),
  retain: () =>
    new Option('--retain <what>', `rows that policy "retention" keeps: ${retainForms} (default: lru:1024)`),
  profile: () => new Option('--profile <file>', 'activation profile, as "waybill profile" writes it'),
  forecast: () =>
    new Option(
      '--forecast <timing>',
      'when policy "forecast" fetches its guesses: early, late (a control)',
    ).argParser(oneOf('--forecast', forecastTimings)),
  lowBit: () =>
    new Option(
      '--low-bit <format>',
      `low-bit copies that policy "certified" proves neurons inactive with: ${lowBitNames.join(', ')}, or a name that "waybill profile" wrote (default: ${defaultLowBit})`,
    ),
  certify: () =>
    new Option(
      '--certify <formats>',
      `count what certificates by these low-bit copies leave undecided, check each, and write the cheapest copies a layer as "profiled": ${lowBitNames.join(',')}`,
    ),
  directions: () =>
    new Option(
      '--directions <n>',
      'also with so many directions of each layer, chosen from the first quarter of the text: a multiple of 16, at most 64',
    ).argParser(integer('--directions', 0)),
  streamLayout: () =>
    new Option(
      '--stream-layout <name>',
      'how policy "stream" finds second projections on the host: packed, strided (a control, with a GPU)',
    ).argParser(oneOf('--stream-layout', streamLayouts)),
  guesser: () =>
    new Option(
      '--guesser <name>',
      'what policy "forecast" guesses from: previous (the token before), residual (tables of a profile)',
    ).argParser(oneOf('--guesser', guessers)),
  backend: () =>
    new Option(
      '--backend <name>',
      `where arithmetic happens: ${backendNames.join(', ')}; auto takes a GPU where one works and holds the plan`,
    )
      .argParser(oneOf('--backend', backendNames))
      .default('auto' as const),
  device: () => new Option('--device <n>', 'which GPU, from 0').argParser(integer('--device', 0)),
  hostBudget: () =>
    new Option('--host-budget <bytes>', 'most bytes of page-locked host memory, with a GPU').argParser(
      (text) => parseByteSize(text, '--host-budget'),
    ),
  numerics: () =>
    new Option(
      '--numerics <mode>',
      'arithmetic: portable (equal bits everywhere), native (tensor cores, a GPU alone)',
    )
      .argParser(oneOf('--numerics', numericsModes))
      .default('portable' as const),
  kernels: () =>
    new Option('--kernels <name>', 'which CPU kernels: auto, native, wasm; names the cpu backend')
      .argParser(oneOf('--kernels', ['auto', 'native', 'wasm']))
      .default('auto' as const),
  threads: () =>
    new Option(
      '-t, --threads <n>',
      'compute threads of the cpu backend, which it names (default: as many as there are processors)',
    ).argParser(integer('--threads', 1)),
  kv: () =>
    new Option('--kv <type>', 'storage type of the KV cache: f16, f32')
      .argParser(oneOf('--kv', ['f16', 'f32']))
      .default('f16' as const),
  prefillChunk: () =>
    new Option('--prefill-chunk <tokens>', 'most prompt tokens of a pass')
      .argParser(integer('--prefill-chunk', 1))
      .default(128),
  maxNewTokens: () =>
    new Option('-n, --max-new-tokens <n>', 'most new tokens of a request')
      .argParser(integer('--max-new-tokens', 1))
      .default(128),
  temperature: () =>
    new Option('--temperature <t>', '0 is greedy')
      .argParser(decimal('--temperature', () => true, 'a decimal number that is not negative, such as 0.8'))
      .default(0),
  topK: () =>
    new Option('--top-k <k>', 'keep the k likeliest; 0 keeps all')
      .argParser(integer('--top-k', 0))
      .default(0),
  topP: () =>
    new Option('--top-p <p>', 'keep the likeliest that reach p; 1 keeps all')
      .argParser(decimal('--top-p', (p) => p > 0 && p <= 1, 'a decimal number above 0 and at most 1'))
      .default(1),
  minP: () =>
    new Option('--min-p <p>', 'keep those of p times the likeliest; 0 keeps all')
      .argParser(decimal('--min-p', (p) => p <= 1, 'a decimal number from 0 to 1'))
      .default(0),
  seed: () => new Option('--seed <n>', 'seed of the sampler').argParser(integer('--seed', 0)),
  stop: () =>
    new Option('--stop <text>', 'end at this text (repeatable)').argParser(stopTexts).default([] as string[]),
  ignoreEos: () => new Option('--ignore-eos', 'go on past end-of-sequence tokens'),
  restoreCheck: () =>
    new Option(
      '--restore-check',
      'afterwards hold every weight, compare all with the manifest, generate again, compare digests',
    ),
  receipt: () => new Option('--receipt <file>', 'write a receipt of the run (.intoto.jsonl)'),
  sign: () => new Option('--sign <key.pem>', 'sign the receipt with this Ed25519 private key'),
  includeContent: () => new Option('--include-content', 'put token ids and text into the receipt'),
  logits: () => new Option('--logits <file.safetensors>', 'write the logits row that chose each token'),
  trace: () => new Option('--trace <file.jsonl>', 'write every move of weight bytes'),
  traceOps: () => new Option('--trace-ops <dir>', 'record the output of every op, for "waybill diff"'),
  json: () => new Option('--json', 'print one JSON object and nothing else on standard output'),
  quiet: () => new Option('-q, --quiet', 'no progress and no notes on standard error'),
} as const;
