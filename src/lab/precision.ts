import type { RequestRecord, TrialRecord } from './record-format.js';
import type { Selection } from './selection.js';

/** What two arms of different precision have in common on the items that both ran. */
export interface PrecisionFigures {
  /** New tokens that both have, and how many of them are equal, position by position. */
  readonly tokens: number;
  readonly equalTokens: number;
  /** Positions that both reached by the same tokens; the logits there are aligned. */
  readonly aligned: number;
  /** The largest relative L2 distance over the aligned positions; null where one of the arms kept no logits. */
  readonly worstRelativeL2: number | null;
}

/**
 * Compares the first trials of each item that hold token ids or logits. Contexts are equal up to the first token that
 * differs, and the logits that chose it are the last that can be compared.
 * Gives the text of what is missing where an item lacks it.
 */
export function comparePrecision(
  selection: Selection,
  arm: string,
  against: string,
): PrecisionFigures | { readonly missing: string } {
  const [first, second] = [kept(selection, arm), kept(selection, against)];
  const items = [...new Set(selection.judged.map(({ slot }) => slot.item))].sort((a, b) => a - b);
  let [tokens, equalTokens, aligned] = [0, 0, 0];
  let worst: number | null = 0;
  for (const item of items) {
    const [found, other] = [first.get(item), second.get(item)];
    if (found === undefined || other === undefined) {
      const name = found === undefined ? arm : against;
      return { missing: `no trial of "${name}" on item ${item + 1} holds its logits` };
    }
    for (const [index, request] of found.requests.entries()) {
      const wanted = other.requests[index];
      const [ids, otherIds] = [tokenIdsOf(request), wanted === undefined ? null : tokenIdsOf(wanted)];
      if (ids === null || wanted === undefined || otherIds === null || ids.length !== otherIds.length)
        return { missing: `request ${index + 1} of item ${item + 1} is not whole in both arms` };
      tokens += ids.length;
      equalTokens += ids.filter((id, place) => id === otherIds[place]).length;
      const differs = ids.findIndex((id, place) => id !== otherIds[place]);
      const positions = differs < 0 ? ids.length : differs + 1;
      aligned += positions;
      for (let place = 0; place < positions && worst !== null; place++) {
        const [row, base] = [request.logits?.[place], wanted.logits?.[place]];
        worst = row === undefined || base === undefined ? null : Math.max(worst, distance(row, base));
      }
    }
  }
  if (tokens === 0) return { missing: `no trial of "${arm}" gave a result` };
  return { tokens, equalTokens, aligned, worstRelativeL2: worst };
}

/** The first trial of each item that holds ids or logits. */
function kept(selection: Selection, arm: string): Map<number, TrialRecord> {
  const found = new Map<number, TrialRecord>();
  for (const trial of selection.judged) {
    const { arm: name, item } = trial.slot;
    if (name !== arm || found.has(item)) continue;
    const holds = trial.requests.every(
      ({ content, logits }) => content !== undefined || logits !== undefined,
    );
    if (holds) found.set(item, trial);
  }
  return found;
}

/** Ids as recorded, else the largest logit of each row, which is what greedy decoding chose (ties: the lowest id). */
function tokenIdsOf({ content, logits }: RequestRecord): readonly number[] | null {
  if (content !== undefined) return content.tokenIds;
  return logits?.map((row) => largestIndex(logitsRow(row))) ?? null;
}

/** A row of logits from its base64. */
export function logitsRow(text: string): Float32Array {
  const bytes = Buffer.from(text, 'base64');
  const row = new Float32Array(bytes.length >> 2);
  for (let index = 0; index < row.length; index++) row[index] = bytes.readFloatLE(4 * index);
  return row;
}

function largestIndex(row: Float32Array): number {
  let found = 0;
  for (let index = 1; index < row.length; index++) if (row[index]! > row[found]!) found = index;
  return found;
}

/** ||a - b|| / ||b|| in binary64, summed in order; Infinity for rows that cannot be compared. */
function distance(text: string, baseText: string): number {
  const [row, base] = [logitsRow(text), logitsRow(baseText)];
  if (row.length !== base.length) return Infinity;
  let [squares, of] = [0, 0];
  for (let index = 0; index < row.length; index++) {
    squares += (row[index]! - base[index]!) ** 2;
    of += base[index]! ** 2;
  }
  const relative = Math.sqrt(squares / of);
  return Number.isFinite(relative) ? relative : Infinity;
}
