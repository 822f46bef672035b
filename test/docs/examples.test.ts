import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readDocument, repository } from './support/documents.js';
import { Workplace } from './support/workplace.js';

/** A line that each example must print: what it is there to show. */
const shows: Readonly<Record<string, RegExp>> = {
  'abort.mjs': /^interrupted: 5 tokens, finish reason "interrupted"\ninterrupted: 3 tokens$/m,
  'batch.mjs': /^alone and in the batch: equal$/m,
  'budget-too-small.mjs': /^with (\d+) bytes: regime A, holds \1$/m,
  'lab.mjs':
    /^pass: same bits\npass: fewer bytes\naudit: holds, verdict pass\nreport: one HTML file\nwith one bit changed: broken$/m,
  'plan-first.mjs': /^planned (\d+) bytes, held at most \1$/m,
  'receipt.mjs':
    /^as written: nothing is broken\nchanged: "it is signed by "own key"", "the seal matches the statement"$/m,
  'score.mjs': /^perplexity 23\.434 over 20 tokens$/m,
  'stream-tokens.mjs': /^digest of the last logits: [0-9a-f]{64}$/m,
  'trace-moves.mjs': /^the trace and the ledger agree$/m,
};

describe('examples', () => {
  let workplace: Workplace;
  beforeAll(() => {
    workplace = new Workplace();
  });
  afterAll(() => {
    workplace.remove();
  });

  const names = readdirSync(join(repository, 'examples')).sort();

  test('each shows something and is listed in the README', () => {
    expect(names).toEqual(Object.keys(shows).sort());
    for (const name of names) expect(readDocument('README.md')).toContain(`](examples/${name})`);
  });

  test.each(names)('%s', async (name) => {
    const { exitCode, stdout, stderr } = await workplace.run(process.execPath, [join('examples', name)]);
    expect(stderr).toBe('');
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(shows[name]!);
  });

  test.each(names)('%s imports the package as its users do', (name) => {
    const text = readFileSync(join(repository, 'examples', name), 'utf8');
    expect(text).toContain("from 'waybill'");
    expect(text).not.toMatch(/from '\./);
  });
});
