import { constants } from 'node:fs';
import { access, realpath, stat } from 'node:fs/promises';
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

/** The flags that name what a run reads, where a run that writes has them. */
export interface InputFlags {
  readonly model?: string | undefined;
  readonly promptFile?: string | undefined;
  readonly prompts?: string | undefined;
  readonly text?: string | undefined;
  readonly sign?: string | undefined;
  readonly profile?: string | undefined;
}

interface Output {
  readonly flag: string;
  readonly path: string;
}

/**
 * Checks, before anything runs, that every output can be written, that no two are one file, and that none replaces what
 * the run reads: a run of hours should not fail on a folder that was never there, nor cost anybody a prompt or a model.
 * @throws UsageError `same-file`, `not-a-file`; SetupError `no-such-folder`, `not-a-folder`, `not-writable`
 */
export async function checkOutputs(flags: OutputFlags & InputFlags): Promise<void> {
  const { receipt, logits, trace, traceOps, output } = flags;
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
  await requireUnread(files, flags);
}

async function requireUnread(outputs: readonly Output[], flags: InputFlags): Promise<void> {
  const inputs = new Map<string, string>();
  for (const [flag, path] of [
    ['--prompt-file', flags.promptFile],
    ['--prompts', flags.prompts],
    ['--text', flags.text],
    ['--sign', flags.sign],
    ['--profile', flags.profile],
  ] as const) {
    const real = path === undefined ? null : await realPath(path);
    if (real !== null) inputs.set(real, flag);
  }
  const model = flags.model === undefined ? null : await realPath(flags.model);
  for (const { flag, path } of outputs) {
    const real = await realPath(path);
    if (real === null) continue;
    const ofModel = dirname(real) === model && checkpointFile.test(real);
    const input = ofModel ? '--model' : inputs.get(real);
    if (input === undefined) continue;
    throw new UsageError(
      'same-file',
      `Cannot write ${flag} to "${path}": ${input} reads it, want another file`,
      {
        path,
      },
    );
  }
}

/** What checkpoints are made of; an earlier receipt beside them may be replaced. */
const checkpointFile = /\.(safetensors|bin|json|txt)$/;

/** Null where there is nothing. */
function realPath(path: string): Promise<string | null> {
  return realpath(path).catch(() => null);
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
