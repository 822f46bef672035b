import { DefectError } from '../base/errors.js';
import { weightMoveCauses } from '../memory/causes.js';
import { LogitsSpool } from './logits-spool.js';
import { type Score, type ScoreOptions, scoreTokens } from './score.js';
import type { Session } from './session.js';

/** A text under one policy. */
export interface ScoredArm {
  readonly policy: string;
  readonly exact: boolean;
  readonly score: Score;
  /** Wall time of scoring a token, in passes of `passTokens` tokens. */
  readonly msPerToken: number;
  readonly passTokens: number;
  readonly heldBytes: number;
  readonly weightBytes: number; // of the plan
  readonly movedBytesPerToken: number;
}

/** How far the logits of an arm lie from those of the arm that it is held against. */
export interface LogitsDistance {
  /** Norm of the difference over the norm of the reference, over all rows together. */
  readonly relativeL2: number;
  /** Share of rows whose largest logit has the same id. */
  readonly top1Agreement: number;
  readonly equalDigests: boolean;
}

/** The same text by two policies, one after the other: only one is open at a time. */
export async function compareScores(
  open: { readonly reference: () => Promise<Session>; readonly arm: () => Promise<Session> },
  text: string,
  options: Omit<ScoreOptions, 'prefixId' | 'onRow'>,
): Promise<{ reference: ScoredArm; arm: ScoredArm; distance: LogitsDistance }> {
  const spool = await LogitsSpool.open();
  try {
    const greedy: number[] = [];
    const reference = await scoreArm(await open.reference(), text, options, ({ logits, greedyId }) => {
      spool.write(logits);
      greedy.push(greedyId);
    });
    let [differences, squares, agreed, row] = [0, 0, 0, 0];
    const arm = await scoreArm(await open.arm(), text, options, ({ logits, greedyId }) => {
      const other = spool.read(logits.length);
      if (other === null) throw new DefectError('Cannot compare scores: the reference has fewer rows');
      for (let id = 0; id < logits.length; id += 1) {
        const value = other[id]!;
        differences += (logits[id]! - value) ** 2;
        squares += value ** 2;
      }
      if (greedy[row] === greedyId) agreed += 1;
      row += 1;
    });
    const equalDigests = arm.score.logitsDigests.join() === reference.score.logitsDigests.join();
    const relativeL2 = squares === 0 ? 0 : Math.sqrt(differences / squares);
    return { reference, arm, distance: { relativeL2, top1Agreement: agreed / row, equalDigests } };
  } finally {
    await spool.close();
  }
}

/** Scores a text and closes the session. */
async function scoreArm(
  session: Session,
  text: string,
  options: Omit<ScoreOptions, 'prefixId' | 'onRow'>,
  onRow: NonNullable<ScoreOptions['onRow']>,
): Promise<ScoredArm> {
  try {
    if (session.tokenizer === null) throw session.tokenizerProblem!;
    const ids = session.tokenizer.encode(text, { addSpecialTokens: false });
    const { placement, prepared } = session.plan;
    const movedBefore = movedBytes(session);
    let spentNs = 0n; // on comparing
    const began = process.hrtime.bigint();
    const score = await scoreTokens(session, ids, {
      ...options,
      prefixId: prepared.description.config.bosTokenId,
      onRow: (row) => {
        const at = process.hrtime.bigint();
        onRow(row);
        spentNs += process.hrtime.bigint() - at;
      },
    });
    const ns = process.hrtime.bigint() - began - spentNs;
    return {
      policy: placement.policy,
      exact: placement.exact,
      score,
      msPerToken: Number(ns) / 1e6 / score.scoredTokens,
      passTokens: Math.min(session.prefillChunk, session.maxLogitsRows),
      heldBytes: session.ledger.totals().totalHeldPeak,
      weightBytes: placement.components
        .filter(({ cause }) => cause === 'dense-weights')
        .reduce((sum, { bytes }) => sum + bytes, 0),
      movedBytesPerToken: (movedBytes(session) - movedBefore) / score.scoredTokens,
    };
  } finally {
    await session.close();
  }
}

function movedBytes({ ledger }: Session): number {
  const { moved } = ledger.totals();
  return weightMoveCauses.reduce((sum, cause) => sum + moved[cause], 0);
}
