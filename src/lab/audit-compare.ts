import { canonicalJson } from '../base/canonical-json.js';
import { TamperedError } from '../base/errors.js';
import type { Statement } from '../receipt/statement.js';
import type { GateResult, Verdict } from './gates.js';
import { type LabPredicate, labPredicateSchema, labPredicateType } from './lab-predicate.js';
import type { JudgedArchive } from './lab-receipt.js';

/** A gate as the records give it and as the receipt says it. */
export interface ComparedGate {
  readonly name: string;
  readonly family: string;
  /** Null where the receipt has a gate that the protocol does not. */
  readonly recomputed: Verdict | null;
  readonly receipt: Verdict | null;
  readonly equal: boolean;
  readonly reason: string;
}

/**
 * Checks that the A/A run is one of the same protocol, and that attempts are earlier ones at the same question.
 * @throws TamperedError `archive-parts-differ`
 */
export function comparePart({ run, noise, attempts }: JudgedArchive): void {
  const refuse = (problem: string): TamperedError =>
    new TamperedError('archive-parts-differ', `Comparing the runs of the archive failed: ${problem}`);
  const { protocol } = run.part;
  if (noise !== null) {
    if (noise.part.manifest.variant !== 'aa') throw refuse('the run under "aa/" is no A/A run');
    if (noise.part.protocol.digest !== protocol.digest) throw refuse('the A/A run is of another protocol');
  }
  const seen = new Set([run.part.manifestDigest, ...(noise === null ? [] : [noise.part.manifestDigest])]);
  for (const { part } of attempts) {
    if (part.protocol.protocol.name !== protocol.protocol.name) {
      throw refuse(`"${part.prefix}" is of protocol "${part.protocol.protocol.name}"`);
    }
    const known = [protocol, ...run.part.superseded].map(({ digest }) => digest);
    if (!known.includes(part.protocol.digest)) {
      throw refuse(
        `"${part.prefix}" is of a protocol that this one does not supersede (${part.protocol.digest})`,
      );
    }
    if (seen.has(part.manifestDigest))
      throw refuse(`"${part.prefix}" is a run that the archive holds already`);
    if (Date.parse(part.manifest.startedAt) > Date.parse(run.part.manifest.startedAt)) {
      throw refuse(`"${part.prefix}" began after the run that it is called an earlier attempt of`);
    }
    seen.add(part.manifestDigest);
  }
}

/** Gate by gate; a receipt that cannot be read has none. */
export function gatesOf(recomputed: readonly GateResult[], statements: readonly Statement[]): ComparedGate[] {
  const said = accountingOf(statements)?.gates ?? [];
  const compared = recomputed.map(({ name, family, verdict, reason }): ComparedGate => {
    const receipt = said.find((gate) => gate.name === name)?.verdict ?? null;
    return { name, family, recomputed: verdict, receipt, equal: receipt === verdict, reason };
  });
  const strangers = said.filter(({ name }) => !recomputed.some((gate) => gate.name === name));
  return [
    ...compared,
    ...strangers.map(({ name, family, verdict, reason }) => ({
      name,
      family,
      recomputed: null,
      receipt: verdict,
      equal: false,
      reason,
    })),
  ];
}

/** The accounting that a receipt holds, or null. */
export function accountingOf(statements: readonly Statement[]): LabPredicate | null {
  const statement = statements.find(({ predicateType }) => predicateType === labPredicateType);
  return labPredicateSchema.safeParse(statement?.predicate).data ?? null;
}

/** The first field in which the statements differ from those that the records give, or null. */
export function firstStatementDifference(
  wanted: readonly Statement[],
  found: readonly Statement[],
): string | null {
  if (wanted.length !== found.length) return `it holds ${found.length} statements, want ${wanted.length}`;
  for (const [index, statement] of wanted.entries()) {
    const place = firstDifference(statement, found[index], `statement ${index + 1}`);
    if (place !== null) return `${place} is not what the records give`;
  }
  return null;
}

function firstDifference(wanted: unknown, found: unknown, place: string): string | null {
  if (canonicalJson(wanted ?? null) === canonicalJson(found ?? null)) return null;
  if (!isRecord(wanted) || !isRecord(found)) return place;
  // The seal follows from all else
  const keys = [...new Set([...Object.keys(wanted), ...Object.keys(found)])].filter((key) => key !== 'seal');
  for (const key of keys) {
    const inner = firstDifference(wanted[key], found[key], `${place}.${key}`);
    if (inner !== null) return inner;
  }
  return place;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
