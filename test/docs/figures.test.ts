import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { policyNames } from '../../src/acquire/policy.js';
import { formatByteSize } from '../../src/base/byte-size.js';
import { exitCodes } from '../../src/base/errors.js';
import { llamaVariants } from '../../src/checkpoint/llama-variants.js';
import { commandEntries } from '../../src/cli/commands.js';
import { flags } from '../../src/cli/flags.js';
import { runtimeAllowanceBytes } from '../../src/memory/runtime-allowance.js';
import { proseOf, readDocument, repository } from './support/documents.js';

const readme = readDocument('README.md');

test('the README states the runtime allowance that the tests hold runs to', () => {
  expect(readme).toContain(`at most ${formatByteSize(runtimeAllowanceBytes)} more`);
  expect(readme).toContain(`budget + ${formatByteSize(runtimeAllowanceBytes)}`);
});

test('the README has a section for each command, and names each policy and architecture', () => {
  const headings = proseOf(readme).filter((line) => line.startsWith('### '));
  for (const { name } of commandEntries)
    expect(
      headings.some((line) => line.split(/\W+/).includes(name)),
      name,
    ).toBe(true);
  for (const name of policyNames) expect(readme).toContain(`| \`${name}\` |`);
  for (const name of ['OPTForCausalLM', ...Object.keys(llamaVariants)])
    expect(readme).toContain(`\`${name}\``);
});

test('every flag that the README names in its text is one', () => {
  const known = Object.values(flags).map((flag) => flag().long);
  const ofOneCommand = [
    '--help',
    '--verify',
    '--tensors',
    '--text',
    '--key',
    '--version',
    '--against',
    '--learn-guesser',
  ];
  const ofNpm = ['--ignore-scripts'];
  for (const [, flag] of proseOf(readme)
    .join('\n')
    .matchAll(/`(--[a-z-]+)/g))
    expect([...known, ...ofOneCommand, ...ofNpm]).toContain(flag);
});

test('the table of exit codes is complete', () => {
  const rows = [...readDocument('docs/formats/exit-codes.md').matchAll(/^\| (\d+) \|/gm)].map(([, code]) =>
    Number(code),
  );
  expect(rows).toEqual(Object.values(exitCodes));
});

/** Times, ratios, shares and rates; "2 x 3" is a size. */
const figure = /\d(?: |\u00a0)?(?:ms|[x×](?! ?\d)|%|[kMGT]B\/s|tokens\/s)(?![\w/])/;
const receiptLink = /\]\((receipts\/[\w.-]+\.zip\.br)\)/g;

/** Paragraphs, list items and tables that hold a figure and link to no archive that is there. */
function unproven(text: string): string[] {
  const blocks = proseOf(text)
    .join('\n')
    .split(/\n\s*\n|\n(?=- )/);
  return blocks.filter((block) => {
    const links = [...block.matchAll(receiptLink)].map(([, path]) => path!);
    return figure.test(block) && !links.some((path) => existsSync(join(repository, path)));
  });
}

test.each(['README.md', 'CHANGELOG.md'])('every figure of %s names a receipt', (name) => {
  expect(unproven(readDocument(name))).toEqual([]);
});

test('a figure without a receipt is found', () => {
  const claims = [
    'It takes 5 ms.',
    '| a | 4.2 % |',
    '- 3.1 x as fast',
    'at 0.6 GB/s',
    'about 30 tokens/s',
    '7× less',
  ];
  for (const claim of claims) expect(unproven(`Text.\n\n${claim}\n\nText.`), claim).toHaveLength(1);
  const cited = (path: string) => `It takes 5 ms ([archive](${path})).`;
  expect(unproven(cited('receipts/exact-packets-small.zip.br'))).toEqual([]);
  expect(unproven(cited('receipts/none.zip.br'))).toHaveLength(1);
  expect(unproven('A tile of 32 x 128 elements, in 3 steps')).toEqual([]);
});
