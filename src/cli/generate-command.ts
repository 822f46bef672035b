import { UsageError } from '../base/errors.js';
import { generateOptions } from '../generate/options.js';
import { flags } from './flags.js';
import { checkOutputs } from './output-files.js';
import { Progress } from './progress.js';
import { readPrompts } from './prompt-input.js';
import { sessionCommand } from './session-command.js';
import { openTerminal } from './terminal.js';
import { checkReceiptFlags } from './write-run-receipt.js';

function command() {
  return sessionCommand('generate')
    .optionsGroup('Prompts and sampling:')
    .addOption(flags.prompt())
    .addOption(flags.promptFile())
    .addOption(flags.prompts())
    .addOption(flags.promptIds())
    .addOption(flags.maxNewTokens())
    .addOption(flags.temperature())
    .addOption(flags.topK())
    .addOption(flags.topP())
    .addOption(flags.minP())
    .addOption(flags.seed())
    .addOption(flags.stop())
    .addOption(flags.ignoreEos())
    .optionsGroup('Evidence:')
    .addOption(flags.restoreCheck())
    .addOption(flags.receipt())
    .addOption(flags.sign())
    .addOption(flags.includeContent())
    .addOption(flags.logits())
    .addOption(flags.trace())
    .addOption(flags.traceOps());
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
