import { expect, test } from 'vitest';
import { policyNames } from '../../src/acquire/policy.js';
import { formatByteSize } from '../../src/base/byte-size.js';
import { exitCodes } from '../../src/base/errors.js';
import { llamaVariants } from '../../src/checkpoint/llama-variants.js';
import { commandEntries } from '../../src/cli/commands.js';
import { flags } from '../../src/cli/flags.js';
import { runtimeAllowanceBytes } from '../../src/memory/runtime-allowance.js';
import { proseOf, readDocument } from './support/documents.js';

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
