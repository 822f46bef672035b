import type { KeyObject } from 'node:crypto';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { type ExitCode, exitCodes, TamperedError } from '../base/errors.js';
import type { Statement } from '../receipt/statement.js';
import { verifyReceipt } from '../receipt/verify.js';
import { type Members, readArchive } from './archive-container.js';
import { archiveFiles, archiveLayout, checkSums, type Layout, member } from './archive-layout.js';
import { type RunPart, readPart } from './archive-part.js';
import { type ComparedGate, comparePart, firstStatementDifference, gatesOf } from './audit-compare.js';
import { checkPart } from './audit-part.js';
import { borrowedRecords, checkReferences } from './audit-reference.js';
import type { Verdict } from './gates.js';
import { labClaims } from './lab-claims.js';
import { type JudgedArchive, judgePart, labStatements } from './lab-receipt.js';
import { roCrate } from './ro-crate.js';

/**
 * An audit reads an archive as a stranger wrote it: it checks every digest, recomputes every metric and verdict from the
 * raw records, and only then looks at what the receipt says. It imports nothing that runs trials.
 */
export interface AuditCheck {
  readonly check: string;
  /** `unchecked`: the means to check it were not given. */
  readonly verdict: 'holds' | 'broken' | 'unchecked';
  readonly text: string;
}

export interface Audit {
  readonly archive: { readonly sha256: string; readonly byteLength: string };
  readonly holds: boolean;
  /** In the order in which they were made; the first that is broken is the last. */
  readonly checks: readonly AuditCheck[];
  readonly broken: { readonly code: string; readonly problem: string } | null;
  /** Recomputed; null where the archive did not hold so far. */
  readonly verdict: Verdict | null;
  readonly gates: readonly ComparedGate[];
  readonly exitCode: ExitCode;
}

export interface AuditOptions {
  /** Names the archive in messages. */
  readonly name: string;
  /** Trusted public keys; with keys given, an unsigned receipt is broken. */
  readonly keys?: readonly { readonly name: string; readonly key: KeyObject }[];
  /** Bytes of the archives that a reference was taken from; without them it is not checked. */
  readonly references?: readonly Uint8Array[];
}

/** What a whole audit found, and what it was found in, for those who go on (reports, re-execution). */
export interface AuditedArchive {
  readonly audit: Audit;
  /** Null where the audit did not get so far. */
  readonly archive: JudgedArchive | null;
  readonly members: Members | null;
}

/** Audits an archive. Broken things are reported, never thrown. */
export async function auditArchive(bytes: Uint8Array, options: AuditOptions): Promise<AuditedArchive> {
  const checks: AuditCheck[] = [];
  const found: { members: Members | null; archive: JudgedArchive | null; gates: ComparedGate[] } = {
    members: null,
    archive: null,
    gates: [],
  };
  let broken: Audit['broken'] = null;
  try {
    await runChecks(bytes, options, checks, found);
  } catch (error) {
    if (!(error instanceof TamperedError)) throw error;
    broken = { code: error.code, problem: error.message };
  }
  const evaluation = found.archive?.run.evaluation ?? null;
  const audit: Audit = {
    archive: { sha256: sha256Hex(bytes), byteLength: String(bytes.byteLength) },
    holds: broken === null,
    checks,
    broken,
    verdict: evaluation?.verdict ?? null,
    gates: found.gates,
    exitCode: broken === null && evaluation !== null ? evaluation.exitCode : exitCodes.tampered,
  };
  return { audit, archive: found.archive, members: found.members };
}

async function runChecks(
  bytes: Uint8Array,
  { name, keys = [], references = [] }: AuditOptions,
  checks: AuditCheck[],
  found: { members: Members | null; archive: JudgedArchive | null; gates: ComparedGate[] },
): Promise<void> {
  const step = async <T>(
    check: string,
    text: (value: T) => string,
    run: () => T | Promise<T>,
  ): Promise<T> => {
    try {
      const value = await run();
      checks.push({ check, verdict: 'holds', text: text(value) });
      return value;
    } catch (error) {
      if (error instanceof TamperedError) checks.push({ check, verdict: 'broken', text: error.message });
      throw error;
    }
  };
  const members = await step(
    'container',
    ({ size }) => `${size} members, each byte of the file accounted for`,
    () => readArchive(bytes, name),
  );
  found.members = members;
  const layout: Layout = await step(
    'layout',
    ({ prefixes, attachments }) => `${prefixes.length} runs, ${attachments.length} attachments`,
    () => archiveLayout(members),
  );
  await step(
    'digests',
    () => `${members.size - 1} members have the SHA-256 that is listed`,
    () => checkSums(members),
  );
  const parts: RunPart[] = [];
  for (const prefix of layout.prefixes) {
    const part = await step(
      `${prefix}records`,
      ({ records, manifest }) =>
        `${records.length} records in one chain behind a manifest of ${manifest.slots.length} trials`,
      () => readPart(members, prefix),
    );
    parts.push(part);
    await step(
      `${prefix}schedule`,
      () => 'the trials are those of the protocol, in its order',
      () => checkPart(part),
    );
  }
  const judged = parts.map(judgePart);
  const noise = judged.find(({ part }) => part.prefix === 'aa/') ?? null;
  const archive: JudgedArchive = {
    run: judged[0]!,
    noise,
    attempts: judged.slice(noise === null ? 1 : 2),
  };
  await step(
    'parts',
    () => 'all runs are of one protocol',
    () => comparePart(archive),
  );
  if (parts.some((part) => borrowedRecords(part).length > 0)) {
    const compared = await step(
      'reference',
      (count) =>
        count === null
          ? 'the archive that the reference was taken from was not given'
          : `${count} records are those of the archive that they were taken from`,
      () => checkReferences(parts, references),
    );
    if (compared === null) checks.push({ ...checks.pop()!, verdict: 'unchecked' });
  }
  const statements = labStatements(members, archive);
  found.archive = archive;
  await step(
    'receipt',
    () => 'every verdict and figure of the receipt follows from the records',
    () => checkReceipt(members, statements, found),
  );
  checkSignatures(members, name, keys, checks);
  await step(
    'description',
    () => `${archiveFiles.crate} describes these members`,
    () => checkCrate(members, archive),
  );
}

/** Compares what the receipt says with what the records give, gate by gate first. */
function checkReceipt(
  members: Members,
  wanted: readonly Statement[],
  found: { archive: JudgedArchive | null; gates: ComparedGate[] },
): void {
  const name = archiveFiles.receipt;
  const { statements, claims } = verifyReceipt(member(members, name), name, { predicates: labClaims });
  found.gates = gatesOf(found.archive!.run.evaluation.gates, statements);
  const different = found.gates.find(({ equal }) => !equal);
  if (different !== undefined) {
    throw new TamperedError(
      'receipt-gate-differs',
      `Checking gate "${different.name}" failed: the records give ${different.recomputed ?? 'no such gate'}, the receipt says ${different.receipt ?? 'nothing'}`,
      { gate: different.name },
    );
  }
  const broken = claims.find(({ verdict }) => verdict === 'broken');
  const problem =
    broken?.text === undefined ? firstStatementDifference(wanted, statements) : `broken is: ${broken.text}`;
  if (problem !== null) throw new TamperedError('receipt-differs', `Checking "${name}" failed: ${problem}`);
}

function checkSignatures(
  members: Members,
  name: string,
  keys: NonNullable<AuditOptions['keys']>,
  checks: AuditCheck[],
): void {
  const { claims } = verifyReceipt(member(members, archiveFiles.receipt), name, {
    keys,
    predicates: labClaims,
  });
  for (const { text, verdict } of claims.filter((claim) => /signed|key id/.test(claim.text))) {
    checks.push({ check: 'signature', verdict, text });
    if (verdict === 'broken') {
      throw new TamperedError(
        'receipt-signature',
        `Checking "${archiveFiles.receipt}" failed: broken is: ${text}`,
      );
    }
  }
}

function checkCrate(members: Members, archive: JudgedArchive): void {
  const found = Buffer.from(member(members, archiveFiles.crate)).toString('utf8');
  if (found === roCrate(members, archive)) return;
  throw new TamperedError(
    'archive-description-differs',
    `Checking "${archiveFiles.crate}" failed: it is not what the other members give`,
  );
}

/** The audit as canonical JSON and a newline: two audits of one archive give equal bytes. */
export function auditJson(audit: object): string {
  return `${canonicalJson(audit)}\n`;
}
