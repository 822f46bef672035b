import type { Arrangement, ArrangeRequest } from './arrangement.js';
import { rowPathOf } from './policy.js';

/** Says where a policy cannot do what it is for, and what is done instead. */
export function placementNotes(
  { survey, policy, retention }: ArrangeRequest,
  arrangement: Arrangement,
): string[] {
  if (rowPathOf(policy) === null) return [];
  const ofNeurons = survey.matrices.filter(
    ({ description }) => description.role === 'second' || description.role === 'up',
  );
  const dense = ofNeurons.filter(({ denseReason }) => denseReason !== null);
  const instead = 'held where the budget allows, else streamed whole';
  const notes: string[] = [];
  if (dense.length === ofNeurons.length) {
    const reasons = new Set(dense.map(({ denseReason }) => denseReason));
    const reason = reasons.has('dense-activation')
      ? 'its activations are never exactly zero'
      : 'every layer holds non-finite weights';
    notes.push(
      `policy "${policy.name}" cannot help this model: ${reason}; second projections are ${instead}`,
    );
  } else if (dense.length > 0) {
    notes.push(
      `policy "${policy.name}" cannot help ${dense.length} of ${ofNeurons.length} matrices, which hold non-finite weights; they are ${instead}`,
    );
  }
  if (rowPathOf(policy) === 'certified') notes.push(...certificateNotes(survey));
  const fed = [...arrangement.arenaOf.keys()];
  if (retention?.kind === 'hot' && fed.length > 0 && arrangement.keptRows.size === 0) {
    notes.push('the budget leaves no bytes for a hot set: every active row moves');
  }
  return notes;
}

/** First projections and gates that no certificate serves. */
function certificateNotes({ matrices }: ArrangeRequest['survey']): string[] {
  const firsts = matrices.filter(({ description: { role } }) => role === 'first' || role === 'gate');
  const without = firsts.filter(({ certificate }) => certificate === null).length;
  if (without === 0) return [];
  const which =
    without === firsts.length
      ? 'no first projection'
      : `not ${without} of ${firsts.length} first projections`;
  return [
    `policy "certified" can certify ${which}: weights must be finite and activations exactly zero; the others are held or streamed whole`,
  ];
}
