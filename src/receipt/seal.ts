import type { KeyObject } from 'node:crypto';
import { writeFileAtomic } from '../base/atomic-file.js';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { signEnvelope } from './dsse.js';
import { type RunPredicate, runPredicateSchema, runPredicateType } from './run-predicate.js';
import { type Statement, type Subject, statementType } from './statement.js';

/** Makes the statement of a run: checks its shape, sorts its subjects, seals it. */
export function runStatement(subjects: readonly Subject[], predicate: Omit<RunPredicate, 'seal'>): Statement {
  const subject = [...subjects].sort((a, b) => (a.name < b.name ? -1 : 1));
  const open = { _type: statementType, subject, predicateType: runPredicateType, predicate } as const;
  const sealed = {
    ...open,
    predicate: { ...predicate, seal: sha256Hex(Buffer.from(canonicalJson(open), 'utf8')) },
  };
  runPredicateSchema.parse(sealed.predicate);
  return sealed;
}

/** One line of an `.intoto.jsonl` file: the canonical statement, or its DSSE envelope where a key is given. */
export function receiptLine(statement: Statement, privateKey: KeyObject | null): string {
  const canonical = canonicalJson(statement);
  if (privateKey === null) return canonical;
  return canonicalJson(signEnvelope(Buffer.from(canonical, 'utf8'), privateKey));
}

/** Writes the receipt whole or not at all. */
export async function writeReceipt(
  path: string,
  statement: Statement,
  privateKey: KeyObject | null,
): Promise<void> {
  await writeFileAtomic(path, Buffer.from(`${receiptLine(statement, privateKey)}\n`, 'utf8'));
}
