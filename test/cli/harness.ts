import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll } from 'vitest';
import type { RunJson } from './json-shapes.js';

export const draft = resolve('models/opt-books-draft');
export const target = resolve('models/opt-books-target');
export const gated = resolve('models/reglu-books');
export const layout = (name: string): string => resolve('test/fixtures/layouts', name);

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string | Uint8Array;
  readonly home?: string;
  readonly environment?: NodeJS.ProcessEnv;
  /** Shell words put before the command, such as `ulimit -f 10;`. */
  readonly shell?: string;
}

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A folder that is gone after the test file. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'waybill-cli-'));
  folders.push(folder);
  return folder;
}

/** One Hugging Face home a test file, so that a model is prepared once. */
const sharedHome = temporaryFolder();

export function start(args: readonly string[], options: RunOptions = {}): ChildProcess {
  const { HF_HUB_OFFLINE: _, ...environment } = process.env;
  const command = [process.execPath, resolve('bin/waybill.js'), ...args];
  const [file, words] =
    options.shell === undefined
      ? [command[0]!, command.slice(1)]
      : ['/bin/bash', ['-c', `${options.shell} exec "$@"`, 'bash', ...command]];
  return spawn(file, words, {
    env: { ...environment, HF_HOME: options.home ?? sharedHome, HF_HUB_OFFLINE: '1', ...options.environment },
    stdio: 'pipe',
  });
}

/** Waits for a started command. */
export function finish(child: ChildProcess, input: string | Uint8Array = ''): Promise<Finished> {
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout!.on('data', (bytes: Buffer) => out.push(bytes));
  child.stderr!.on('data', (bytes: Buffer) => err.push(bytes));
  child.stdin!.on('error', () => {}); // the command may end without reading it
  child.stdin!.end(input);
  return new Promise((done, fail) => {
    child.on('error', fail);
    child.on('close', (code) =>
      done({
        code,
        stdout: Buffer.concat(out).toString('utf8'),
        stderr: Buffer.concat(err).toString('utf8'),
      }),
    );
  });
}

/** Runs `waybill` to its end. */
export function waybill(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return finish(start(args, options), options.input);
}

/** Runs a command that must succeed with `--json`, and reads its one object. */
export async function waybillJson<Value = RunJson>(
  args: readonly string[],
  options: RunOptions = {},
): Promise<Value> {
  const { code, stdout, stderr } = await waybill([...args, '--json'], options);
  if (code !== 0) throw new Error(`exit code ${code}: ${stdout}${stderr}`);
  return JSON.parse(stdout) as Value;
}

/** What `--json` says of a failure, with the exit code. */
export async function failure(
  args: readonly string[],
  options: RunOptions = {},
): Promise<{ exit: number | null; code: string; message: string; data: Record<string, unknown> }> {
  const { code, stdout, stderr } = await waybill([...args, '--json'], options);
  const parsed = JSON.parse(stdout) as {
    error: { code: string; message: string; data: Record<string, unknown> };
  };
  if (/\n\s+at /.test(stderr)) throw new Error(`a stack trace: ${stderr}`);
  return { exit: code, ...parsed.error };
}

/** Tensors of a safetensors file, read by this test alone. */
export function readSafetensors(path: string): Map<string, { shape: number[]; bytes: Buffer }> {
  const file = readFileSync(path);
  const headerLength = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerLength)) as Record<
    string,
    { shape: number[]; data_offsets: [number, number] }
  >;
  const { __metadata__: _, ...entries } = header;
  return new Map(
    Object.entries(entries).map(
      ([
        name,
        {
          shape,
          data_offsets: [begin, end],
        },
      ]) => [name, { shape, bytes: file.subarray(8 + headerLength + begin, 8 + headerLength + end) }],
    ),
  );
}
