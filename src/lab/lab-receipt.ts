import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { type Statement, type Subject, statementType } from '../receipt/statement.js';
import type { Members } from './archive-container.js';
import { archiveFiles } from './archive-layout.js';
import type { RunPart } from './archive-part.js';
import { armValues } from './comparison.js';
import { type Evaluation, evaluateRun } from './evaluation.js';
import { effectSummary, fractionText } from './lab-effect.js';
import {
  type LabPredicate,
  labPredicateType,
  type PartSummary,
  type TestResult,
  testResultType,
} from './lab-predicate.js';
import type { MetricName } from './metric-names.js';
import { allArms } from './protocol-schema.js';
import type { TrialRecord } from './record-format.js';
import type { Selection } from './selection.js';
import { selectRun } from './sequential.js';
import { ascending, nearestRank } from './statistics/percentile.js';

/** A part and what its records come to. */
export interface JudgedPart {
  readonly part: RunPart;
  readonly selection: Selection;
  readonly evaluation: Evaluation;
}

/** All that an archive says, judged anew from its raw records. */
export interface JudgedArchive {
  readonly run: JudgedPart;
  readonly noise: JudgedPart | null;
  readonly attempts: readonly JudgedPart[];
}

/** Judges a part by its protocol and raw records. */
export function judgePart(part: RunPart): JudgedPart {
  const { protocol, manifest, records } = part;
  return {
    part,
    selection: selectRun(protocol.protocol, manifest, records),
    evaluation: evaluateRun(protocol.protocol, manifest, records),
  };
}

/**
 * The two statements of an archive: the verdict as in-toto test-result, the accounting under our own predicate. A pure
 * function of members, so that an audit makes them again and compares.
 */
export function labStatements(members: Members, archive: JudgedArchive): [Statement, Statement] {
  const subject = subjectsOf(members, archive.run.part);
  const verdict = {
    _type: statementType,
    subject,
    predicateType: testResultType,
    predicate: testResult(archive),
  };
  const open = {
    _type: statementType,
    subject,
    predicateType: labPredicateType,
    predicate: accountingOf(archive),
  } as const;
  const seal = sha256Hex(Buffer.from(canonicalJson(open), 'utf8'));
  return [verdict as Statement, { ...open, predicate: { ...open.predicate, seal } }];
}

/** What was tested, and the members that hold the evidence. */
function subjectsOf(members: Members, { manifest }: RunPart): Subject[] {
  const arms = Object.entries(manifest.subjects);
  const tested = arms.flatMap(([arm, subjects]) =>
    subjects.map(({ name, sha256 }) => {
      const others = arms.some(([, list]) =>
        list.some((other) => other.name === name && other.sha256 !== sha256),
      );
      return { name: others ? `arm/${arm}/${name}` : name, sha256 };
    }),
  );
  const evidence = [...members]
    .filter(
      ([name]) => name !== archiveFiles.receipt && name !== archiveFiles.crate && name !== archiveFiles.sums,
    )
    .map(([name, bytes]) => ({ name: `archive/${name}`, sha256: sha256Hex(bytes) }));
  const byName = new Map(
    [manifest.program, ...tested, ...evidence].map(({ name, sha256 }) => [name, sha256]),
  );
  return [...byName]
    .map(([name, sha256]) => ({ name, digest: { sha256 } }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** PASSED only where there are gates and every one of them passes. */
function testResult({ run }: JudgedArchive): TestResult {
  const { part, evaluation } = run;
  const names = (pass: boolean): string[] =>
    evaluation.gates.filter(({ verdict }) => (verdict === 'pass') === pass).map(({ name }) => name);
  const passed = evaluation.gates.length > 0 && evaluation.exitCode === 0;
  return {
    result: passed ? 'PASSED' : 'FAILED',
    configuration: [
      { name: `protocol/${part.protocol.protocol.name}`, digest: { sha256: part.protocol.digest } },
      { name: archiveFiles.protocol, digest: { sha256: part.protocolFileDigest } },
    ],
    passedTests: names(true),
    failedTests: names(false),
  };
}

/** What the records of an archive come to, as its receipt has to say it. */
export function accountingOf({ run, noise, attempts }: JudgedArchive): Omit<LabPredicate, 'seal'> {
  const { evaluation, part, selection } = run;
  return {
    version: '0.1',
    run: partSummary(run),
    gates: evaluation.gates.map(({ name, family, check, verdict, reason, figures, effect }) => ({
      name,
      family,
      check,
      verdict,
      reason,
      figures: { ...figures },
      effect: effect === null ? null : effectSummary(effect),
    })),
    deviations: [...evaluation.deviations],
    violations: [...evaluation.violations],
    accounts: allArms(part.protocol.protocol).map(({ name }) => ({
      arm: name,
      metrics: Object.fromEntries(
        part.protocol.protocol.metrics.map((metric) => [metric, metricSummary(selection, name, metric)]),
      ),
      movedBytes: movedBytes(selection, name),
    })),
    environment: part.manifest.environment,
    noise: noise === null ? null : { run: partSummary(noise), floors: floors(noise.evaluation) },
    attempts: attempts.map(partSummary),
  };
}

export function partSummary({ part, selection, evaluation }: JudgedPart): PartSummary {
  return {
    protocol: {
      name: part.protocol.protocol.name,
      digest: part.protocol.digest,
      fileSha256: part.protocolFileDigest,
    },
    variant: part.manifest.variant,
    manifestSha256: part.manifestDigest,
    records: part.records.length,
    headSha256: part.headDigest,
    status: selection.status,
    verdict: evaluation.verdict,
    startedAt: part.manifest.startedAt,
    finishedAt: selection.ended?.at ?? null,
  };
}

function floors({ noiseFloors }: Evaluation): NonNullable<LabPredicate['noise']>['floors'] {
  return noiseFloors.map(({ metric, arm, against, floor }) => ({
    metric,
    arm,
    against,
    floor:
      floor === null
        ? null
        : {
            pairs: floor.pairs,
            ratio: fractionText(floor.ratio),
            low: fractionText(floor.low),
            high: fractionText(floor.high),
            share: fractionText(floor.share),
          },
  }));
}

function metricSummary(selection: Selection, arm: string, metric: MetricName) {
  const values = armValues(selection, arm, metric);
  const known = ascending(values.filter((value) => value !== null));
  return {
    count: known.length,
    of: values.length,
    least: known[0]?.toString() ?? null,
    median: nearestRank(known, 50)?.value.toString() ?? null,
    most: known.at(-1)?.toString() ?? null,
  };
}

/** The trials of an arm that count. */
export function countedTrials(selection: Selection, arm: string): TrialRecord[] {
  const references = selection.references.filter(({ slot }) => slot.arm === arm);
  if (references.length > 0) return references;
  return selection.blocks.flatMap((block) => block?.get(arm) ?? []);
}

function movedBytes(selection: Selection, arm: string): Record<string, string> | null {
  const totals = new Map<string, bigint>();
  const trials = countedTrials(selection, arm);
  for (const { bytes } of trials) {
    if (bytes.moved === null) return null;
    for (const [cause, count] of Object.entries(bytes.moved)) {
      totals.set(cause, (totals.get(cause) ?? 0n) + BigInt(count));
    }
  }
  if (trials.length === 0) return null;
  return Object.fromEntries([...totals].map(([cause, total]) => [cause, total.toString()]));
}
