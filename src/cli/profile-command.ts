import { Command } from '@commander-js/extra-typings';
import { type ActivationProfile, profileDigest, profileText } from '../acquire/activation-profile.js';
import { writeFileAtomic } from '../base/atomic-file.js';
import { UsageError } from '../base/errors.js';
import { readTextFile } from '../checkpoint/prompt-files.js';
import { ActivationCounter } from '../generate/activation-counter.js';
import { scoreTokens } from '../generate/score.js';
import { openModel } from '../generate/session.js';
import { flags } from './flags.js';
import { checkOutputs } from './output-files.js';
import { plainTable } from './plain-table.js';
import { Progress } from './progress.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';

const logitsRows = 32;

/** `waybill profile`: which rows a text needs, for `--retain hot:auto` and for the figures of `plan`. */
export function profileCommand() {
  return new Command('profile')
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .requiredOption('--text <file>', 'text to run through the model, UTF-8')
    .requiredOption('-o, --output <file>', 'where to write the profile')
    .addOption(flags.budget())
    .addOption(flags.policy())
    .addOption(flags.backend())
    .addOption(flags.kernels())
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
      await checkOutputs({ output: given.output });
      const text = await readTextFile(given.text);
      if (text.length === 0)
        throw new UsageError('empty-text', `Cannot profile "${given.text}": it is empty, want text`);
      const { signal, dispose } = interruption();
      const hooks = sessionHooks(terminal, progress, signal, null);
      const session = await openModel({ ...sessionOptionsOf(given), logitsRows }, hooks);
      try {
        progress.stop();
        const { prepared } = session.plan;
        const counter = new ActivationCounter(prepared.description);
        session.observer = counter.observer;
        if (session.tokenizer === null) throw session.tokenizerProblem!;
        const ids = session.tokenizer.encode(text, { addSpecialTokens: false });
        await scoreTokens(session, ids, {
          prefixId: prepared.description.config.bosTokenId,
          signal,
          onProgress: (done, total) => progress.items('profiling', done, total),
        });
        progress.stop();
        const profile = counter.profile(prepared.sourceDigest);
        await writeFileAtomic(given.output, profileText(profile));
        terminal.print(reportOf(profile));
        if (terminal.json) {
          const { checkpoint, tokens, coverage } = profile;
          const output = given.output;
          terminal.printJson({ output, digest: profileDigest(profile), checkpoint, tokens, coverage });
        }
      } finally {
        progress.stop();
        await session.close();
        dispose();
      }
    });
}

function reportOf(profile: ActivationProfile): string {
  const { tokens, matrices, coverage } = profile;
  const { rows, uses } = coverage.at(-1)!;
  const repeats = matrices.reduce((sum, matrix) => sum + matrix.repeats, 0);
  const share = (part: number, whole: number) => `${((100 * part) / Math.max(1, whole)).toFixed(1)} %`;
  const lines = [
    `${tokens} tokens, ${rows} rows of ${matrices.length} matrices`,
    `${share(uses, rows * tokens)} of the rows are active in a token, ${share(repeats, uses)} of those were in the one before`,
    `digest ${profileDigest(profile)}`,
  ];
  const table = plainTable(['rows used most', 'of all rows', 'of all uses']);
  for (const point of coverage)
    table.push(
      [point.rows, share(point.rows, rows), share(point.uses, uses)].map((content) => ({
        hAlign: 'right' as const,
        content: String(content),
      })),
    );
  return `${lines.join('\n')}\n\n${table.toString()}\n`;
}
