import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import type { Statement } from '../receipt/statement.js';
import type { Claim } from '../receipt/verify.js';
import {
  type LabPredicate,
  labPredicateSchema,
  labPredicateType,
  testResultSchema,
  testResultType,
} from './lab-predicate.js';

/** What a verifier can check of the lab's predicates by themselves; their truth is for an audit of the archive. */
export const labClaims: ReadonlyMap<string, (statement: Statement) => readonly Claim[]> = new Map([
  [testResultType, testResultClaims],
  [labPredicateType, accountingClaims],
]);

function testResultClaims({ predicate }: Statement): Claim[] {
  const parsed = testResultSchema.safeParse(predicate);
  if (!parsed.success) return [schemaClaim(parsed.error.issues[0]!)];
  const { result, passedTests, failedTests } = parsed.data;
  const wanted = passedTests.length > 0 && failedTests.length === 0;
  return [
    schemaClaim(null),
    claim('it says PASSED only where every gate passed', result !== 'PASSED' || wanted),
  ];
}

function accountingClaims(statement: Statement): Claim[] {
  const parsed = labPredicateSchema.safeParse(statement.predicate);
  if (!parsed.success) return [schemaClaim(parsed.error.issues[0]!)];
  return [schemaClaim(null), claim('the seal matches the statement', sealHolds(statement, parsed.data))];
}

function sealHolds(statement: Statement, { seal, ...rest }: LabPredicate): boolean {
  return sha256Hex(Buffer.from(canonicalJson({ ...statement, predicate: rest }), 'utf8')) === seal;
}

function schemaClaim(issue: { path: PropertyKey[]; message: string } | null): Claim {
  if (issue === null) return claim('the predicate follows its schema', true);
  return claim(`the predicate follows its schema (${issue.path.join('.')}: ${issue.message})`, false);
}

function claim(text: string, holds: boolean): Claim {
  return { text, verdict: holds ? 'holds' : 'broken' };
}
