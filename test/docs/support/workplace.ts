import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { repository } from './documents.js';

/** What a command left behind. */
export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * A temporary folder in which commands of a document run as in a clone: the repository's programs, models and
 * examples are there, HF_HOME is empty, the hub is out of reach. `npx waybill` is answered by the clone's own program
 * at once; that the real npx finds it is tested in test/package.
 */
export class Workplace {
  readonly folder = mkdtempSync(join(tmpdir(), 'waybill-docs-'));
  readonly #environment: NodeJS.ProcessEnv;

  constructor() {
    for (const name of [
      'package.json',
      'bin',
      'dist',
      'models',
      'examples',
      'scripts',
      'docs',
      'src',
      'protocols',
      'receipts',
    ])
      symlinkSync(join(repository, name), join(this.folder, name));
    mkdirSync(join(this.folder, 'node_modules'));
    mkdirSync(join(this.folder, '.tmp'));
    symlinkSync(repository, join(this.folder, 'node_modules', 'waybill'));
    const tools = join(this.folder, '.tools');
    mkdirSync(tools);
    const npx = join(tools, 'npx');
    writeFileSync(
      npx,
      `#!/bin/sh\n[ "$1" = waybill ] || { echo "npx $1: not in this test" >&2; exit 99; }\nshift\nexec "${process.execPath}" "${join(repository, 'bin', 'waybill.js')}" "$@"\n`,
    );
    chmodSync(npx, 0o755);
    const { HF_TOKEN: _token, HF_HUB_CACHE: _cache, HF_ENDPOINT: _endpoint, ...environment } = process.env;
    this.#environment = {
      ...environment,
      PATH: `${tools}${delimiter}${environment.PATH ?? ''}`,
      HF_HOME: join(this.folder, '.hf'),
      HF_HUB_OFFLINE: '1',
      // runs of the lab lease processors below it, and other tests run beside this one
      TMPDIR: join(this.folder, '.tmp'),
    };
  }

  run(program: string, args: readonly string[]): Promise<CommandResult> {
    return new Promise((resolve) => {
      const options = { cwd: this.folder, env: this.#environment, maxBuffer: 64 * 2 ** 20 };
      const child = execFile(program, args, options, (error, stdout, stderr) => {
        const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        resolve({ exitCode, stdout, stderr });
      });
      child.stdin?.end();
    });
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
