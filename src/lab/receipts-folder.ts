import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { TamperedError } from '../base/errors.js';
import { parsePublicKey } from '../receipt/dsse.js';
import { verifyReceipt } from '../receipt/verify.js';
import { readArchiveFile } from './archive-file.js';
import { auditArchive } from './audit.js';
import { labClaims } from './lab-claims.js';
import { labPredicateSchema, labPredicateType } from './lab-predicate.js';
import { parseProtocol } from './protocol-file.js';
import type { LoneReceipt, ReceiptEntry } from './receipts-table.js';

const endings = { archive: '.zip.br', receipt: '.intoto.jsonl.br' } as const;

/**
 * Everything that lies in a folder of receipts, by name: archives (`NAME.zip.br`), each audited with the key beside it
 * (`NAME.pub.pem`), and receipts of archives that are too large for it (`NAME.intoto.jsonl.br`), each verified with its key,
 * of the protocol of that name in `protocols`.
 * @throws TamperedError `receipt-broken` for one that does not hold; InputError, TamperedError as `readArchiveFile`
 */
export async function receiptEntries(folder: string, protocols: string): Promise<ReceiptEntry[]> {
  const entries: ReceiptEntry[] = [];
  for (const file of (await readdir(folder)).sort()) {
    const [kind, ending] = Object.entries(endings).find(([, ending]) => file.endsWith(ending)) ?? [];
    if (kind === undefined || ending === undefined) continue;
    const name = file.slice(0, -ending.length);
    const keyName = `${name}.pub.pem`;
    const key = parsePublicKey(await readFile(join(folder, keyName), 'utf8'), keyName);
    const keys = [{ name: keyName, key }];
    if (kind === 'receipt') {
      entries.push(await loneReceipt(join(folder, file), file, keys, join(protocols, `${name}.yaml`)));
      continue;
    }
    const { audit, archive } = await auditArchive(await readArchiveFile(join(folder, file)), {
      name: file,
      keys,
    });
    if (audit.broken !== null || archive === null)
      throw broken(file, audit.broken?.problem ?? 'it is unread');
    entries.push({ file, archive });
  }
  return entries;
}

/** A receipt whose every claim holds that needs no archive, of the protocol in a file. */
async function loneReceipt(
  path: string,
  file: string,
  keys: NonNullable<Parameters<typeof verifyReceipt>[2]>['keys'],
  protocolPath: string,
): Promise<LoneReceipt> {
  const bytes = brotliDecompressSync(await readFile(path));
  const { statements, claims } = verifyReceipt(bytes, file, { ...(keys && { keys }), predicates: labClaims });
  const wrong = claims.find(({ verdict }) => verdict === 'broken');
  if (wrong !== undefined) throw broken(file, `it is broken that ${wrong.text}`);
  const statement = statements.find(({ predicateType }) => predicateType === labPredicateType);
  if (statement === undefined) throw broken(file, 'it accounts for no run');
  const receipt = labPredicateSchema.parse(statement.predicate);
  const { protocol, digest } = parseProtocol(await readFile(protocolPath), protocolPath);
  if (receipt.run.protocol.digest !== digest)
    throw broken(
      file,
      `it is of the protocol ${receipt.run.protocol.digest}, "${protocolPath}" is ${digest}`,
    );
  return { file, receipt, protocol };
}

function broken(file: string, problem: string): TamperedError {
  return new TamperedError('receipt-broken', `Cannot show the receipt "${file}": ${problem}`, { file });
}
