import { Command } from '@commander-js/extra-typings';
import { UsageError } from '../base/errors.js';
import { generateOptions } from '../generate/options.js';
import { flags } from './flags.js';
import { checkOutputs } from './output-files.js';
import { Progress } from './progress.js';
import { readPrompts } from './prompt-input.js';
import { openTerminal } from './terminal.js';
import { checkReceiptFlags } from './write-run-receipt.js';

function command() {
  return new Command('generate')
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .addOption(flags.prompt())
    .addOption(flags.promptFile())
    .addOption(flags.prompts())
    .addOption(flags.promptIds())
    .addOption(flags.budget())
    .addOption(flags.policy())
    .addOption(flags.retain())
    .addOption(flags.profile())
    .addOption(flags.forecast())
    .addOption(flags.guesser())
    .addOption(flags.lowBit())
    .addOption(flags.streamLayout())
    .addOption(flags.backend())
    .addOption(flags.kernels())
    .addOption(flags.numerics())
    .addOption(flags.threads())
    .addOption(flags.device())
    .addOption(flags.hostBudget())
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
    .addOption(flags.restoreCheck())
    .addOption(flags.receipt())
    .addOption(flags.sign())
    .addOption(flags.includeContent())
    .addOption(flags.logits())
    .addOption(flags.trace())
    .addOption(flags.traceOps())
    .addOption(flags.json())
    .addOption(flags.quiet());
}

export type GenerateFlags = ReturnType<ReturnType<typeof command>['opts']>;

/** `waybill generate`. */
export function generateCommand() {
  return command().action(async (given) => {
    const terminal = openTerminal(given);
    const progress = new Progress(terminal);
    const options = generateOptions(samplingOf(given));
    const keyPem = await checkReceiptFlags(given);
    await checkOutputs(given);
    const input = await readPrompts(given, (...work) => progress.bytes(...work));
    const { runGenerate } = await import('./generate-run.js');
    await runGenerate({ given, options, input, keyPem, terminal, progress });
  });
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
