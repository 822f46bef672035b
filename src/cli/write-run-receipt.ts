import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { writeFilesAtomic } from '../base/atomic-files.js';
import { InputError, UsageError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import type { Session } from '../generate/session.js';
import { parsePrivateKey } from '../receipt/dsse.js';
import { type RunFacts, runPredicate, sessionSubjects } from '../receipt/run-record.js';
import { receiptLine, runStatement } from '../receipt/seal.js';

/** The flags that say what becomes of the receipt. */
export interface ReceiptFlags {
  readonly receipt?: string | undefined;
  readonly sign?: string | undefined;
  readonly includeContent?: boolean | undefined;
}

/** Refuses flags that could not take effect, before anything runs. Returns the signing key's text, or null. */
export async function checkReceiptFlags(flags: ReceiptFlags): Promise<string | null> {
  if (flags.receipt === undefined && (flags.sign !== undefined || flags.includeContent === true)) {
    const flag = flags.sign !== undefined ? '--sign' : '--include-content';
    throw new UsageError(
      'option-without-effect',
      `Cannot use ${flag} without --receipt: there is nothing to put it into`,
    );
  }
  if (flags.sign === undefined) return null;
  const pem = await readFile(flags.sign, 'utf8').catch((cause: unknown) => {
    throw new InputError(
      'unreadable-file',
      `Cannot read the private key "${flags.sign}": ${failureReason(cause)}`,
      {},
      { cause },
    );
  });
  parsePrivateKey(pem, flags.sign);
  return pem;
}

/** Writes the receipt and, beside it, the salt of its digests (mode 0600): both or none. */
export async function writeRunReceipt(
  session: Session,
  facts: Omit<RunFacts, 'salt' | 'includeContent'>,
  flags: ReceiptFlags & { receipt: string },
  keyPem: string | null,
): Promise<void> {
  const salt = randomBytes(32);
  const predicate = runPredicate(session, { ...facts, salt, includeContent: flags.includeContent === true });
  const statement = runStatement(sessionSubjects(session), predicate);
  const key = keyPem === null ? null : parsePrivateKey(keyPem, flags.sign!);
  await writeFilesAtomic([
    { path: `${flags.receipt}.salt`, text: `${salt.toString('hex')}\n`, mode: 0o600 },
    { path: flags.receipt, text: `${receiptLine(statement, key)}\n` },
  ]);
}
