import { type ActivationProfile, profileDigest, profileText } from '../acquire/activation-profile.js';
import { nativeLowBitRows } from '../backend/cpu/low-bit-rows.js';
import { nativeTransposer } from '../backend/cpu/native-transpose.js';
import { writeFileAtomic } from '../base/atomic-file.js';
import { ActivationCounter } from '../generate/activation-counter.js';
import { feedText } from '../generate/feed-text.js';
import { openModel } from '../generate/session.js';
import {
  certificateRequest,
  certificateText,
  certificateTotals,
  profileCertificates,
} from './certificate-profile.js';
import { flags } from './flags.js';
import { checkOutputs } from './output-files.js';
import { plainTable } from './plain-table.js';
import { Progress } from './progress.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';
import { readText, textCommand, textRows } from './text-command.js';

/** `waybill profile`: which rows a text needs, for `--retain hot:auto` and for the figures of `plan`. */
export function profileCommand() {
  return textCommand('profile')
    .requiredOption('-o, --output <file>', 'where to write the profile')
    .addOption(flags.certify())
    .addOption(flags.directions())
    .option('--learn-guesser', 'also learn tables that guess rows from the residual (--guesser residual)')
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      await checkOutputs({ output: given.output });
      const certificates = certificateRequest(given.certify, given.directions);
      const text = await readText(given.text, 'profile');
      const { signal, dispose } = interruption();
      const hooks = sessionHooks(terminal, progress, signal, null);
      const session = await openModel({ ...sessionOptionsOf(given), logitsRows: textRows }, hooks);
      try {
        progress.stop();
        const { prepared } = session.plan;
        const counter = new ActivationCounter(prepared.description, given.learnGuesser === true);
        session.observer = counter.observer;
        if (session.tokenizer === null) throw session.tokenizerProblem!;
        const ids = session.tokenizer.encode(text, { addSpecialTokens: false });
        const feeding = (label: string) => ({
          prefixId: prepared.description.config.bosTokenId,
          signal,
          onProgress: (done: number, total: number) => progress.items(label, done, total),
        });
        await feedText(session, ids, feeding('profiling'));
        progress.stop();
        const profile = counter.profile(prepared.sourceDigest);
        await writeFileAtomic(given.output, profileText(profile));
        terminal.print(reportOf(profile));
        const certified =
          certificates === null
            ? null
            : await profileCertificates(
                session,
                ids,
                certificates,
                (part) => feedText(session, part, feeding('certifying')),
                {
                  signal,
                  makeRows: nativeLowBitRows(),
                  readTransposed: nativeTransposer(),
                  onProgress: (done, total) => progress.bytes('preparing low-bit copies', done, total),
                },
              );
        progress.stop();
        if (certified !== null) terminal.print(`\n${certificateText(certified)}\n`);
        if (terminal.json) {
          const { checkpoint, tokens, coverage } = profile;
          const output = given.output;
          terminal.printJson({
            output,
            digest: profileDigest(profile),
            checkpoint,
            tokens,
            coverage,
            ...(certified === null
              ? {}
              : { certificates: certified.counts, totals: certificateTotals(certified.counts) }),
          });
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
