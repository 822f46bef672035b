import { availableParallelism } from 'node:os';
import { basename, dirname, relative, resolve } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { writeFileAtomic } from '../base/atomic-file.js';
import { resolveModel } from '../checkpoint/hub.js';
import { openOrPrepare } from '../checkpoint/open-or-prepare.js';
import { openTokenizer } from '../checkpoint/tokenizer.js';
import { closePlan, planSession } from '../generate/session.js';
import { protocolTemplate, templateChunk, templatePositions } from '../lab/protocol-template.js';
import { saltedPromptDigest } from '../lab/workload.js';
import { flags } from './flags.js';
import { Progress } from './progress.js';
import { openTerminal } from './terminal.js';

/** `waybill lab init`: a protocol to begin with. */
export function labInitCommand() {
  return new Command('init')
    .description('write a protocol to begin with')
    .argument('<file>', 'protocol to write (.yaml)')
    .addOption(flags.model())
    .option('--prompts <file.jsonl>', 'items that stay out of the protocol: lines {"prompts": [...]}')
    .addOption(flags.threads())
    .addOption(flags.json())
    .addOption(flags.quiet())
    .action(async (file, given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const { directory } = await resolveModel(given.model);
      const { prepared } = await openOrPrepare(directory, {
        onProgress: (done, total, phase) => progress.bytes(phase, done, total),
      }).finally(() => progress.stop());
      const { config } = prepared.description;
      const { sourceDigest } = prepared;
      const threads = given.threads ?? availableParallelism();
      await prepared.close();
      const folder = dirname(resolve(file));
      const text = protocolTemplate({
        name:
          basename(file)
            .replace(/\.ya?ml$/, '')
            .toLowerCase()
            .replace(/[^a-z0-9]+/g, '-')
            .replace(/^-+|-+$/g, '') || 'protocol',
        modelPath: relative(folder, resolve(directory)) || '.',
        sourceDigest,
        vocabSize: config.vocabSize,
        maxPositions: config.maxPositions,
        hasTokenizer: (await openTokenizer(directory).catch(() => null)) !== null,
        prompts:
          given.prompts === undefined
            ? null
            : {
                file: relative(folder, resolve(given.prompts)),
                saltedSha256: await saltedPromptDigest(given.prompts),
              },
        threads,
        budgetBytes: await budgetWithoutRows(directory, config.maxPositions, threads),
      });
      await writeFileAtomic(file, text, { replace: false });
      terminal.print(`wrote ${file}; change it, then: waybill lab freeze ${file}\n`);
      if (terminal.json) terminal.printJson({ file, sourceDigest });
    });
}

/** Room for everything but the rows that packets are about. */
async function budgetWithoutRows(model: string, maxPositions: number, threads: number): Promise<number> {
  const contextPositions = templatePositions(maxPositions);
  const placementOf = async (policy: 'stream' | 'packets') => {
    const plan = await planSession({
      model,
      policy,
      backend: 'cpu',
      threads,
      contextPositions,
      prefillChunk: templateChunk,
    });
    await closePlan(plan);
    return plan.placement;
  };
  // A stream without a limit holds all but those rows
  return Math.max((await placementOf('stream')).totalBytes, (await placementOf('packets')).minimumBytes);
}
