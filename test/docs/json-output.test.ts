import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readDocument } from './support/documents.js';
import { Workplace } from './support/workplace.js';

const document = readDocument('docs/formats/json-output.md');
const draft = '--model models/opt-books-draft';
/** Commands by their row in the document; later ones use what earlier ones wrote. */
const calls: readonly (readonly [row: string, command: string])[] = [
  ['generate', `generate ${draft} --prompt Hello -n 2 --trace-ops ops --receipt run.intoto.jsonl`],
  ['plan', `plan ${draft} --ctx-size 64 --budget 4MiB`],
  ['inspect', `inspect ${draft}`],
  ['prepare', `prepare ${draft}`],
  ['score', `score ${draft} --text models/opt-books-draft/README.md`],
  ['profile', `profile ${draft} --text models/opt-books-draft/README.md -o profile.json`],
  ['diff', 'diff ops ops'],
  ['verify', 'verify run.intoto.jsonl'],
  ['keygen', 'keygen pair'],
  ['cache ls', 'cache ls'],
  ['doctor', 'doctor'],
];

/** First names of fields that the row of a command lists: those in code marks, without what stands in brackets. */
function fieldsOf(row: string): string[] {
  const line = document.split('\n').find((text) => text.startsWith(`| \`${row}\` |`))!;
  const cell = line
    .split(' | ')[1]!
    .replace(/\([^)]*\)/g, '')
    .replace(/\[\]` of .*/, '[]`');
  return [...cell.matchAll(/`(\w+)(?:\[\])?`/g)].map(([, name]) => name!);
}

describe('objects of --json', () => {
  let workplace: Workplace;
  beforeAll(() => {
    workplace = new Workplace();
  });
  afterAll(() => {
    workplace.remove();
  });

  test.each(calls)('%s', async (row, command) => {
    const { stdout, stderr, exitCode } = await workplace.run('bash', ['-c', `npx waybill ${command} --json`]);
    expect(exitCode, stderr).toBe(0);
    const fields = Object.keys(JSON.parse(stdout) as object).sort();
    const wanted = fieldsOf(row).filter((name) => row !== 'generate' || name !== 'requests');
    expect(fields).toEqual(wanted.sort());
  });

  test('several prompts', async () => {
    const lines = `printf '"Hello"\\n"Once"\\n'`;
    const command = `${lines} > two.jsonl; npx waybill generate ${draft} --prompts two.jsonl -n 2 --json`;
    const { stdout } = await workplace.run('bash', ['-c', command]);
    const { requests } = JSON.parse(stdout) as { requests: object[] };
    expect(requests).toHaveLength(2);
    for (const name of ['text', 'tokenIds', 'finishReason', 'promptTokens', 'digests'])
      expect(requests[1]).toHaveProperty(name);
  });

  test('a failure', async () => {
    const { stdout, exitCode } = await workplace.run('bash', [
      '-c',
      `npx waybill plan ${draft} --budget 1 --json`,
    ]);
    const { error } = JSON.parse(stdout) as { error: object };
    expect(Object.keys(error).sort()).toEqual(['code', 'data', 'message']);
    expect(exitCode).toBe(3);
  });
});
