import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  commandsOf,
  documentNames,
  fencesOf,
  matchesShown,
  proseOf,
  readDocument,
} from './support/documents.js';
import { notRun } from './support/not-run.js';
import { Workplace } from './support/workplace.js';

const documents = documentNames().map((name) => ({ name, text: readDocument(name) }));

// One folder a document, so that a command may use what an earlier one wrote.
describe.each(documents)('commands of $name', ({ text }) => {
  const commands = commandsOf(text);
  const scripts = fencesOf(text).filter(({ language }) => language === 'js');
  let workplace: Workplace;

  beforeAll(() => {
    workplace = new Workplace();
  });

  afterAll(() => {
    workplace.remove();
  });

  test('every block is of a kind that is looked at', () => {
    for (const { language, line } of fencesOf(text))
      expect(['sh', 'console', 'js', 'json', 'text'], `line ${line}`).toContain(language);
    for (const line of proseOf(text)) expect(line).not.toMatch(/^(\t| {4,})\$? ?(npm|npx|node|git|waybill) /);
  });

  for (const command of commands) {
    test(`line ${command.line}: ${command.text}`, async () => {
      const parts = command.text.split(' && ');
      for (const [index, part] of parts.entries()) {
        const exception = notRun.find((known) => known.command.test(part));
        if (exception !== undefined) {
          await exception.check(part, workplace);
          continue;
        }
        const result = await workplace.run('bash', ['-c', part]);
        const wanted = index < parts.length - 1 ? 0 : command.exitCode;
        expect(result.exitCode, `${result.stdout}${result.stderr}`).toBe(wanted);
        if (command.output !== null && !matchesShown(result.stdout, command.output))
          expect(result.stdout).toBe(command.output);
      }
    });
  }

  for (const { line, lines } of scripts) {
    test(`line ${line}: the script runs`, async () => {
      const file = join(workplace.folder, `script-${line}.mjs`);
      writeFileSync(file, lines.join('\n'));
      const { exitCode, stderr } = await workplace.run(process.execPath, [file]);
      expect(stderr).toBe('');
      expect(exitCode).toBe(0);
    });
  }
});

test('what a document shows must be what is printed', () => {
  expect(matchesShown('a  \nb 17 c\n\n', 'a\nb … c')).toBe(true);
  expect(matchesShown('first\nx\ny\nlast\n', 'first\n…\nlast')).toBe(true);
  expect(matchesShown('axb', 'a.b')).toBe(false);
  expect(matchesShown('a\nb\nc', 'a\nb')).toBe(false);
  expect(matchesShown('a\nb', 'a\nb\nc')).toBe(false);
});
