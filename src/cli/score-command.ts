import { Command } from '@commander-js/extra-typings';
import { UsageError } from '../base/errors.js';
import { readTextFile } from '../checkpoint/prompt-files.js';
import { scoreTokens } from '../generate/score.js';
import { openModel } from '../generate/session.js';
import { flags } from './flags.js';
import { Progress } from './progress.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';

/** Logits rows of a pass while scoring: enough for a real matrix product, few enough to stay small. */
const scoreRows = 32;

/** `waybill score`: teacher-forced log-probabilities and perplexity of a text. */
export function scoreCommand() {
  return new Command('score')
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .requiredOption('--text <file>', 'text to score, UTF-8')
    .addOption(flags.budget())
    .addOption(flags.policy())
    .addOption(flags.retain())
    .addOption(flags.profile())
    .addOption(flags.forecast())
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
    .addOption(flags.json())
    .addOption(flags.quiet())
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const text = await readTextFile(given.text);
      if (text.length === 0)
        throw new UsageError('empty-text', `Cannot score "${given.text}": it is empty, want text`);
      const { signal, dispose } = interruption();
      const hooks = sessionHooks(terminal, progress, signal, null);
      const session = await openModel({ ...sessionOptionsOf(given), logitsRows: scoreRows }, hooks);
      try {
        progress.stop();
        if (session.tokenizer === null) throw session.tokenizerProblem!;
        const score = await scoreTokens(
          session,
          session.tokenizer.encode(text, { addSpecialTokens: false }),
          {
            prefixId: session.plan.prepared.description.config.bosTokenId,
            signal,
            onProgress: (done, total) => progress.items('scoring', done, total),
          },
        );
        progress.stop();
        terminal.print(
          `${score.scoredTokens} tokens in ${score.windows} windows: ${score.meanNegativeLogLikelihood.toFixed(4)} nats a token, perplexity ${score.perplexity.toFixed(3)}\n`,
        );
        if (terminal.json)
          terminal.printJson({
            ...score,
            logitsDigests: undefined,
            digests: { logits: score.logitsDigests },
          });
      } finally {
        progress.stop();
        await session.close();
        dispose();
      }
    });
}
