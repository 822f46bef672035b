import type { KeyObject } from 'node:crypto';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { TamperedError, WaybillError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { type Envelope, envelopeSchema, keyId, payloadType, signatureBy } from './dsse.js';
import { type RunPredicate, runPredicateSchema, runPredicateType } from './run-predicate.js';
import { type Statement, statementSchema } from './statement.js';

/** Verification re-derives every claim from the receipt's bytes; it imports nothing that produced them. */
export interface Claim {
  readonly text: string;
  /** `unchecked`: the means to check it were not given. */
  readonly verdict: 'holds' | 'broken' | 'unchecked';
}

export interface Verification {
  readonly statements: readonly Statement[];
  readonly claims: readonly Claim[];
}

/** What the verifier may check against besides the receipt itself. */
export interface VerifyOptions {
  /** Trusted public keys; with keys given, an unsigned receipt is broken. */
  readonly keys?: readonly { readonly name: string; readonly key: KeyObject }[];
  /** SHA-256 by subject name, of files at hand. */
  readonly digests?: ReadonlyMap<string, string>;
  /** Checks of further predicates, by predicate type. */
  readonly predicates?: ReadonlyMap<string, (statement: Statement) => readonly Claim[]>;
}

/**
 * Checks a receipt file. Broken claims are reported, not thrown, so that all are told.
 * @throws TamperedError `malformed-receipt` when the bytes are no receipt at all
 */
export function verifyReceipt(bytes: Uint8Array, name: string, options: VerifyOptions = {}): Verification {
  const lines = receiptLines(bytes, name);
  const statements: Statement[] = [];
  const claims: Claim[] = [];
  lines.forEach((line, index) => {
    const at = lines.length === 1 ? '' : `line ${index + 1}: `;
    const add = (text: string, verdict: Claim['verdict']): void => {
      claims.push({ text: at + text, verdict });
    };
    const { statement, canonical, envelope } = readLine(line, `"${name}" line ${index + 1}`);
    statements.push(statement);
    add('the statement is canonical in-toto Statement v1', canonical ? 'holds' : 'broken');
    signatureClaims(envelope, options.keys ?? [], add);
    subjectClaims(statement, options.digests ?? new Map(), add);
    const further = options.predicates?.get(statement.predicateType);
    if (further === undefined) predicateClaims(statement, add);
    else for (const { text, verdict } of further(statement)) add(text, verdict);
  });
  return { statements, claims };
}

function receiptLines(bytes: Uint8Array, name: string): string[] {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw malformed(name, 'it is not UTF-8', cause);
  }
  if (!text.endsWith('\n')) throw malformed(name, 'its last line is cut off: there is no final newline');
  const lines = text.slice(0, -1).split('\n');
  if (lines.some((line) => line.length === 0)) throw malformed(name, 'it has an empty line');
  return lines;
}

function readLine(
  line: string,
  name: string,
): { statement: Statement; canonical: boolean; envelope: Envelope | null } {
  const value = parse(line, name);
  const envelope = envelopeSchema.safeParse(value);
  if (!envelope.success)
    return { statement: readStatement(value, name), canonical: isCanonical(value, line), envelope: null };
  if (envelope.data.payloadType !== payloadType) {
    throw malformed(name, `its payload type is "${envelope.data.payloadType}", want "${payloadType}"`);
  }
  const payload = Buffer.from(envelope.data.payload, 'base64').toString('utf8');
  const inner = parse(payload, `${name} payload`);
  const encodings = [envelope.data.payload, ...envelope.data.signatures.map(({ sig }) => sig)];
  const canonical =
    isCanonical(value, line) &&
    isCanonical(inner, payload) &&
    encodings.every((text) => isCanonicalBase64(text));
  return { statement: readStatement(inner, name), canonical, envelope: envelope.data };
}

function parse(text: string, name: string): unknown {
  try {
    return parseJson(text, name);
  } catch (cause) {
    if (cause instanceof WaybillError) throw malformed(name, cause.message, cause);
    throw cause;
  }
}

function readStatement(value: unknown, name: string): Statement {
  const parsed = statementSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  throw malformed(
    name,
    `it is no in-toto Statement v1: ${issue.path.join('.') || 'value'}: ${issue.message}`,
  );
}

function isCanonical(value: unknown, text: string): boolean {
  try {
    return canonicalJson(value) === text;
  } catch {
    return false; // numbers or strings that canonical JSON has no form for
  }
}

/** Unused bits at the end of base64 could otherwise change unseen. */
function isCanonicalBase64(text: string): boolean {
  return Buffer.from(text, 'base64').toString('base64') === text;
}

type AddClaim = (text: string, verdict: Claim['verdict']) => void;

function signatureClaims(
  envelope: Envelope | null,
  keys: NonNullable<VerifyOptions['keys']>,
  add: AddClaim,
): void {
  if (envelope === null) {
    add('it is signed', keys.length === 0 ? 'unchecked' : 'broken');
    return;
  }
  if (keys.length === 0) {
    add(`it is signed (${envelope.signatures.length} signature; give --key to check by whom)`, 'unchecked');
    return;
  }
  for (const { name, key } of keys) {
    const signature = signatureBy(envelope, key);
    add(`it is signed by "${name}"`, signature === null ? 'broken' : 'holds');
    if (signature?.keyid === undefined) continue;
    add(
      `the key id of that signature is that of "${name}"`,
      signature.keyid === keyId(key) ? 'holds' : 'broken',
    );
  }
}

function subjectClaims(statement: Statement, digests: ReadonlyMap<string, string>, add: AddClaim): void {
  const names = new Set(statement.subject.map((subject) => subject.name));
  add('no subject is named twice', names.size === statement.subject.length ? 'holds' : 'broken');
  for (const { name, digest } of statement.subject) {
    const actual = digests.get(name);
    add(
      `${name} has SHA-256 ${digest.sha256}`,
      actual === undefined ? 'unchecked' : actual === digest.sha256 ? 'holds' : 'broken',
    );
  }
}

function predicateClaims(statement: Statement, add: AddClaim): void {
  if (statement.predicateType !== runPredicateType) {
    add(`the predicate type "${statement.predicateType}" is known`, 'broken');
    return;
  }
  const parsed = runPredicateSchema.safeParse(statement.predicate);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    add(`the predicate follows its schema (${issue.path.join('.')}: ${issue.message})`, 'broken');
    return;
  }
  const predicate = parsed.data;
  const holds = (text: string, truth: boolean): void => add(text, truth ? 'holds' : 'broken');
  holds('the predicate follows its schema', true);
  // Receipts of earlier versions name one file, `prepared/quantised-q8.json`
  const quantised = statement.subject.some(({ name }) => /^prepared\/quantised[-/]/.test(name));
  if (quantised || predicate.exact === false) {
    holds(
      `it was not exact: quantised weights were used (policy "${predicate.policy}")`,
      quantised && predicate.exact === false,
    );
  }
  holds('the seal matches the statement', sealHolds(statement, predicate));
  holds(
    'bytes moved by cause add up to their total',
    sum(predicate.bytes.moved) === BigInt(predicate.bytes.movedTotal),
  );
  holds('the plan adds up to its total', planAddsUp(predicate));
  holds(
    'the peak of held bytes is what the ledger peaked at',
    predicate.peaks.heldBytes === predicate.bytes.heldPeakTotal,
  );
  holds('no cause held more than the whole peak', causesBelowPeak(predicate));
  if (predicate.budgetBytes !== null) {
    const { budgetBytes, peaks } = predicate;
    holds(
      `at most ${budgetBytes} bytes were held: ${peaks.heldBytes}`,
      BigInt(peaks.heldBytes) <= BigInt(budgetBytes),
    );
  }
  deviceClaims(predicate, holds);
  holds(
    'every new token has a logits digest',
    predicate.requests.every((request) => request.logitsDigests.length === request.newTokens),
  );
  holds('the times add up', timesAddUp(predicate));
  holds(
    'it did not end before it began',
    Date.parse(predicate.startedAt) <= Date.parse(predicate.finishedAt),
  );
}

/** Samples that are of several backends say nothing of one; a run that failed may have failed because of them. */
function deviceClaims(
  { peaks: { device }, budgetBytes, regime, status }: RunPredicate,
  holds: (text: string, truth: boolean) => void,
): void {
  if (device === undefined) return;
  holds(
    'a process that held a whole model on the device claims no bounded start',
    regime !== 'resident' || !device.boundedStart,
  );
  const { sampled } = device;
  if (sampled === null || sampled.source === 'shared' || budgetBytes === null || status === 'failed') return;
  holds(
    `the system saw at most ${budgetBytes} bytes of the process on the device: ${sampled.peakBytes}`,
    BigInt(sampled.peakBytes) <= BigInt(budgetBytes),
  );
}

function sealHolds(statement: Statement, predicate: RunPredicate): boolean {
  const { seal, ...rest } = predicate;
  const open = canonicalJson({ ...statement, predicate: rest });
  return sha256Hex(Buffer.from(open, 'utf8')) === seal;
}

function sum(values: Readonly<Record<string, string>>): bigint {
  return Object.values(values).reduce((total, value) => total + BigInt(value), 0n);
}

function planAddsUp({ plan }: RunPredicate): boolean {
  return (
    plan.components.reduce((total, { bytes }) => total + BigInt(bytes), 0n) === BigInt(plan.plannedBytes)
  );
}

function causesBelowPeak({ bytes }: RunPredicate): boolean {
  return Object.values(bytes.heldPeak).every((value) => BigInt(value) <= BigInt(bytes.heldPeakTotal));
}

function timesAddUp({ times }: RunPredicate): boolean {
  const [prefill, decode, total] = [times.prefillNs, times.decodeNs, times.totalNs].map(BigInt) as [
    bigint,
    bigint,
    bigint,
  ];
  const steps = times.decodeStepNs.reduce((all, step) => all + BigInt(step), 0n);
  return prefill + decode === total && steps <= decode;
}

function malformed(name: string, why: string, cause?: unknown): TamperedError {
  return new TamperedError('malformed-receipt', `Cannot verify "${name}": ${why}`, { name }, { cause });
}
