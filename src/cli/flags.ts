import { InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { parseByteSize } from '../base/byte-size.js';
import { WaybillError } from '../base/errors.js';

/** Argument parsers: commander prints what they throw, beside the flag's name. */
function parser<Value>(parse: (text: string) => Value): (text: string) => Value {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      if (error instanceof WaybillError || error instanceof RangeError)
        throw new InvalidArgumentError(error.message);
      throw error;
    }
  };
}

function integer(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < least) {
      throw new InvalidArgumentError(`"${text}" is no integer of at least ${least}.`);
    }
    return value;
  };
}

function decimal(text: string): number {
  if (!/^\d+(\.\d+)?$/.test(text)) throw new InvalidArgumentError(`"${text}" is no decimal number.`);
  return Number(text);
}

const collect = (text: string, earlier: readonly string[] = []): string[] => [...earlier, text];

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
      integer(1),
    ),
  budget: () =>
    new Option('--budget <bytes>', 'most bytes to hold: 4800MiB, 2GB, or a bare number of bytes').argParser(
      parser((text) => parseByteSize(text, '--budget')),
    ),
  policy: () =>
    new Option(
      '--policy <name>',
      'how second-projection weights come: resident, resident-sparse, stream, packets, phase',
    ),
  backend: () =>
    new Option('--backend <name>', 'where arithmetic happens')
      .choices(['cpu', 'oracle'] as const)
      .default('cpu' as const),
  kernels: () =>
    new Option('--kernels <name>', 'which CPU kernels')
      .choices(['auto', 'native', 'wasm'] as const)
      .default('auto' as const),
  threads: () =>
    new Option('-t, --threads <n>', 'compute threads (default: as many as there are processors)').argParser(
      integer(1),
    ),
  kv: () =>
    new Option('--kv <type>', 'storage type of the KV cache')
      .choices(['f16', 'f32'] as const)
      .default('f16' as const),
  prefillChunk: () =>
    new Option('--prefill-chunk <tokens>', 'prompt tokens of a pass').argParser(integer(1)).default(128),
  maxNewTokens: () =>
    new Option('-n, --max-new-tokens <n>', 'most new tokens of a request').argParser(integer(1)).default(128),
  temperature: () => new Option('--temperature <t>', '0 is greedy').argParser(decimal).default(0),
  topK: () => new Option('--top-k <k>', 'keep the k likeliest; 0 keeps all').argParser(integer(0)).default(0),
  topP: () =>
    new Option('--top-p <p>', 'keep the likeliest that reach p; 1 keeps all').argParser(decimal).default(1),
  minP: () =>
    new Option('--min-p <p>', 'keep those of p times the likeliest; 0 keeps all')
      .argParser(decimal)
      .default(0),
  seed: () => new Option('--seed <n>', 'seed of the sampler').argParser(integer(0)),
  stop: () =>
    new Option('--stop <text>', 'end at this text (repeatable)').argParser(collect).default([] as string[]),
  ignoreEos: () => new Option('--ignore-eos', 'go on past end-of-sequence tokens'),
  receipt: () => new Option('--receipt <file>', 'write a receipt of the run (.intoto.jsonl)'),
  sign: () => new Option('--sign <key.pem>', 'sign the receipt with this Ed25519 private key'),
  includeContent: () => new Option('--include-content', 'put token ids and text into the receipt'),
  logits: () => new Option('--logits <file.safetensors>', 'write the logits row that chose each token'),
  trace: () => new Option('--trace <file.jsonl>', 'write every move of weight bytes'),
  traceOps: () => new Option('--trace-ops <dir>', 'record the output of every op, for "waybill diff"'),
  json: () => new Option('--json', 'print one JSON object and nothing else on standard output'),
  quiet: () => new Option('-q, --quiet', 'no progress and no notes on standard error'),
} as const;
