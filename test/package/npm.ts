import { execFile } from 'node:child_process';
import { join } from 'node:path';

export const repository = join(import.meta.dirname, '..', '..');

export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a program without what `npm test` puts into the environment: npm would take its own settings and the
 * repository's folders from there.
 */
export function run(
  program: string,
  args: readonly string[],
  cwd: string,
  extra: NodeJS.ProcessEnv = {},
): Promise<CommandResult> {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^(npm_(?!config_(cache|registry|userconfig)$)|NODE_|VITEST|INIT_CWD$|HF_)/i.test(name),
  );
  const env = { ...Object.fromEntries(inherited), ...extra };
  return new Promise((resolve) => {
    const child = execFile(program, args, { cwd, env, maxBuffer: 64 * 2 ** 20 }, (error, stdout, stderr) => {
      const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
      resolve({ exitCode, stdout, stderr });
    });
    child.stdin?.end();
  });
}

/** What npm says where a registry cannot be reached at all. */
export const unreachable = /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|ENOTCACHED/;
