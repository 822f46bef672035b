import { readFile, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { exitCodes, InputError, SetupError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { labClaims } from '../lab/lab-claims.js';
import { parsePublicKey } from '../receipt/dsse.js';
import { type Claim, verifyReceipt } from '../receipt/verify.js';
import { raiseExitCode } from './exit-code.js';
import { subjectDigests } from './subject-digests.js';
import { openTerminal } from './terminal.js';

const marks: Record<Claim['verdict'], string> = { holds: 'ok', broken: 'BROKEN', unchecked: 'not checked' };

/** `waybill verify`: one claim a line; exit code 6 where one is broken. */
export function verifyCommand() {
  return new Command('verify')
    .argument('<receipt>', '.intoto.jsonl file')
    .option('--key <file...>', 'public key (PEM) that must have signed it')
    .option('--model <folder>', 'checkpoint folder whose files to compare with the subjects')
    .option('--prepared <dir>', 'prepared directory whose manifest to compare with its subject')
    .option('--json', 'print one JSON object')
    .action(async (receipt, options) => {
      const terminal = openTerminal(options);
      await requireFolder('--model', options.model);
      await requireFolder('--prepared', options.prepared);
      const keys = await Promise.all(
        (options.key ?? []).map(async (path) => ({
          name: basename(path),
          key: parsePublicKey((await readInput(path, 'public key')).toString('utf8'), path),
        })),
      );
      const bytes = await readInput(receipt, 'receipt');
      const { statements } = verifyReceipt(bytes, basename(receipt));
      const subjects = statements.flatMap((statement) => statement.subject);
      const digests = await subjectDigests(subjects, options);
      const { claims } = verifyReceipt(bytes, basename(receipt), { keys, digests, predicates: labClaims });
      const broken = claims.filter(({ verdict }) => verdict === 'broken').length;
      for (const { text, verdict } of claims) terminal.print(`${marks[verdict].padEnd(12)} ${text}\n`);
      const checked = claims.filter(({ verdict }) => verdict === 'holds').length;
      terminal.print(
        broken > 0
          ? `${broken} of ${claims.length} claims are broken\n`
          : `${checked} of ${claims.length} claims hold, none is broken\n`,
      );
      if (terminal.json) terminal.printJson({ verdict: broken > 0 ? 'broken' : 'holds', claims });
      if (broken > 0) raiseExitCode(exitCodes.tampered);
    });
}

/** A mistyped folder is no tampering. */
async function requireFolder(flag: string, path: string | undefined): Promise<void> {
  if (path === undefined) return;
  const found = await stat(path).catch(() => null);
  if (found?.isDirectory() === true) return;
  throw new SetupError(
    'no-such-folder',
    `Cannot compare with ${flag} "${path}": it is no folder, want the one that holds the files`,
    { path },
  );
}

async function readInput(path: string, what: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw new InputError(
      'unreadable-file',
      `Cannot read the ${what} "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  }
}
