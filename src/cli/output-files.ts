import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { storageError, systemCode } from '../base/atomic-file.js';
import { UsageError } from '../base/errors.js';

/** The flags that name what a run writes. */
export interface OutputFlags {
  readonly receipt?: string | undefined;
  readonly logits?: string | undefined;
  readonly trace?: string | undefined;
  readonly traceOps?: string | undefined;
  readonly output?: string | undefined;
}

interface Output {
  readonly flag: string;
  readonly path: string;
}

/**
 * Checks, before anything runs, that every output can be written and that no two are one file: a run of hours should
 * not fail on a folder that was never there.
 * @throws UsageError `same-file`, `not-a-file`; SetupError `no-such-folder`, `not-a-folder`, `not-writable`
 */
export async function checkOutputs({ receipt, logits, trace, traceOps, output }: OutputFlags): Promise<void> {
  const files: Output[] = [
    ...(receipt === undefined
      ? []
      : [
          { flag: '--receipt', path: receipt },
          { flag: '--receipt (its salt)', path: `${receipt}.salt` },
        ]),
    ...(logits === undefined ? [] : [{ flag: '--logits', path: logits }]),
    ...(trace === undefined ? [] : [{ flag: '--trace', path: trace }]),
    ...(output === undefined ? [] : [{ flag: '--output', path: output }]),
  ];
  const records =
    traceOps === undefined
      ? []
      : ['ops.jsonl', 'values.bin'].map((name) => ({ flag: '--trace-ops', path: join(traceOps, name) }));
  requireDistinct([...files, ...records]);
  for (const file of files) await checkFile(file);
}

function requireDistinct(outputs: readonly Output[]): void {
  const flagOf = new Map<string, string>();
  for (const { flag, path } of outputs) {
    const other = flagOf.get(resolve(path));
    if (other !== undefined) {
      throw new UsageError(
        'same-file',
        `Cannot write ${other} and ${flag} both to "${path}": want two files`,
        {
          path,
        },
      );
    }
    flagOf.set(resolve(path), flag);
  }
}

async function checkFile({ flag, path }: Output): Promise<void> {
  try {
    await access(dirname(resolve(path)), constants.W_OK | constants.X_OK);
    const found = await stat(path);
    if (!found.isFile()) {
      // A rename would replace a device or pipe by a file
      throw new UsageError(
        'not-a-file',
        `Cannot write ${flag} to "${path}": it exists and is no regular file`,
        {
          path,
        },
      );
    }
    await access(path, constants.W_OK);
  } catch (error) {
    if (systemCode(error) === 'ENOENT' && (await isFolder(dirname(resolve(path))))) return;
    throw storageError(error, 'write', path, 0);
  }
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
