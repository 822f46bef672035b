import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { repository } from './documents.js';
import type { Workplace } from './workplace.js';

/** A command that documents show and that the tests of documents do not run as it stands. */
interface NotRun {
  readonly command: RegExp;
  readonly reason: string;
  /** What is checked in its place. */
  check(command: string, workplace: Workplace): Promise<void>;
}

const scripts = (
  JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8')) as { scripts: Record<string, string> }
).scripts;

/** The npm script is there, and every script and file that it calls, too. */
async function npmScriptExists(command: string): Promise<void> {
  const name = /^npm (?:run )?([\w:]+)/.exec(command)![1]!;
  expect(Object.keys(scripts)).toContain(name);
  const body = scripts[name]!;
  for (const [, called] of body.matchAll(/npm run ([\w:]+)/g)) expect(Object.keys(scripts)).toContain(called);
  for (const [, file] of body.matchAll(/node (\S+)/g))
    expect(existsSync(join(repository, file!)), file).toBe(true);
}

export const notRun: readonly NotRun[] = [
  {
    command: /^npm install$/,
    reason: 'installs what these tests run on; test/package installs the packed package',
    check: async () => {
      for (const name of ['install', 'prepare']) await npmScriptExists(`npm run ${name}`);
    },
  },
  { command: /^npm test$/, reason: 'runs these tests', check: npmScriptExists },
  { command: /^npm run format$/, reason: 'would change the repository', check: npmScriptExists },
  { command: /^npm run check$/, reason: 'npm test begins with it', check: npmScriptExists },
  { command: /^npm run build(:\w+)?$/, reason: 'builds what these tests run on', check: npmScriptExists },
  { command: /^npm run bench$/, reason: 'takes minutes, and no test asserts a time', check: npmScriptExists },
  {
    command: /--model [\w-]+\/opt-\d/,
    reason: 'needs the hub; downloads are tested against a hub on loopback in test/hub',
    // All flags are understood, and the hub is what is missing
    check: async (command, workplace) => {
      const { exitCode, stderr } = await workplace.run('bash', ['-c', command]);
      expect(stderr).toContain('[hub-offline]');
      expect(exitCode).toBe(3);
    },
  },
];
