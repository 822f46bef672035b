import { formatByteSize } from '../base/byte-size.js';
import { compareScores, type LogitsDistance, type ScoredArm } from '../generate/compare-scores.js';
import { type Score, scoreTokens } from '../generate/score.js';
import { openModel } from '../generate/session.js';
import { plainTable } from './plain-table.js';
import { Progress } from './progress.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';
import { readText, textCommand, textRows } from './text-command.js';

/** `waybill score`: teacher-forced log-probabilities and perplexity of a text, of one policy or of one beside another. */
export function scoreCommand() {
  return textCommand('score')
    .option('--against <policy>', 'score by this policy first, and say how far the logits lie apart')
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const text = await readText(given.text, 'score');
      const options = { ...sessionOptionsOf(given), logitsRows: textRows };
      // A reference has no use for what only the other policy knows.
      const { retain: _, forecast: __, streamLayout: ___, guesser: ____, ...common } = given;
      const other =
        given.against === undefined
          ? null
          : { ...sessionOptionsOf({ ...common, policy: given.against }), logitsRows: textRows };
      const { signal, dispose } = interruption();
      const hooks = sessionHooks(terminal, progress, signal, null);
      const scoring = {
        signal,
        onProgress: (done: number, total: number) => progress.items('scoring', done, total),
      };
      try {
        if (other !== null) {
          // Both on one backend, whatever `auto` comes to for the first.
          let { backend } = options;
          const open = {
            reference: async () => {
              const session = await openModel(other, hooks);
              backend = session.plan.options.backend;
              return session;
            },
            arm: () => openModel({ ...options, ...(backend === undefined ? {} : { backend }) }, hooks),
          };
          const { reference, arm, distance } = await compareScores(open, text, scoring);
          progress.stop();
          terminal.print(comparisonText([reference, arm], distance));
          if (terminal.json) terminal.printJson({ ...armJson(arm), against: armJson(reference), distance });
          return;
        }
        const session = await openModel(options, hooks);
        try {
          progress.stop();
          if (session.tokenizer === null) throw session.tokenizerProblem!;
          const { backendChoice, placement } = session.plan;
          const { exact, policy } = placement;
          const score = await scoreTokens(
            session,
            session.tokenizer.encode(text, { addSpecialTokens: false }),
            { prefixId: session.plan.prepared.description.config.bosTokenId, ...scoring },
          );
          progress.stop();
          terminal.print(
            `${score.scoredTokens} tokens in ${score.windows} ${score.windows === 1 ? 'window' : 'windows'}: ${score.meanNegativeLogLikelihood.toFixed(4)} nats a token, perplexity ${score.perplexity.toFixed(3)}${exact ? '' : ` (policy "${policy}" is not exact)`}\n`,
          );
          if (terminal.json)
            terminal.printJson({
              policy,
              exact,
              backend: session.backend.info,
              backendChoice,
              ...scoreJson(score),
            });
        } finally {
          await session.close();
        }
      } finally {
        progress.stop();
        dispose();
      }
    });
}

function scoreJson({ logitsDigests, ...score }: Score) {
  return { ...score, digests: { logits: logitsDigests } };
}

function armJson({ score, heldBytes, weightBytes, ...arm }: ScoredArm) {
  return { ...arm, heldBytes: BigInt(heldBytes), weightBytes: BigInt(weightBytes), ...scoreJson(score) };
}

function comparisonText(
  arms: readonly [reference: ScoredArm, arm: ScoredArm],
  distance: LogitsDistance,
): string {
  const table = plainTable([
    'policy',
    'exact',
    'perplexity',
    'nats a token',
    'ms a token',
    'weights',
    'held at most',
    'moved a token',
  ]);
  for (const { policy, exact, score, msPerToken, weightBytes, heldBytes, movedBytesPerToken } of arms) {
    const cells = [
      score.perplexity.toFixed(3),
      score.meanNegativeLogLikelihood.toFixed(4),
      msPerToken.toFixed(2),
      formatByteSize(weightBytes),
      formatByteSize(heldBytes),
      formatByteSize(Math.round(movedBytesPerToken)),
    ].map((content) => ({ hAlign: 'right' as const, content }));
    table.push([policy, exact ? 'yes' : 'no', ...cells]);
  }
  const [reference, arm] = arms;
  const { relativeL2, top1Agreement, equalDigests } = distance;
  const apart = equalDigests
    ? 'every logits digest is the same'
    : `relative L2 of the logits ${relativeL2.toExponential(2)}, top-1 agreement ${(100 * top1Agreement).toFixed(2)} %`;
  return `${table.toString()}\n${arm.policy} against ${reference.policy}, ${arm.score.scoredTokens} tokens in passes of ${arm.passTokens}: ${apart}\n`;
}
