import { existsSync, statSync } from 'node:fs';
import { homedir, hostname } from 'node:os';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, test } from 'vitest';
import { documentNames, proseOf, readDocument, repository } from './support/documents.js';

/** GitHub's anchors: lower case, spaces to hyphens, other punctuation out. */
function anchorsOf(name: string): string[] {
  return proseOf(readDocument(name))
    .filter((line) => /^#+ /.test(line))
    .map((line) =>
      line
        .replace(/^#+ /, '')
        .trim()
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replace(/ /g, '-'),
    );
}

describe.each(documentNames())('%s', (name) => {
  const text = readDocument(name);
  const prose = proseOf(text).join('\n');

  test('every link leads to a file of the repository, and its anchor to a heading', () => {
    for (const [, target] of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https:\/\//.test(target!)) continue;
      const [path, anchor] = target!.split('#') as [string, string | undefined];
      const file =
        path === ''
          ? name
          : normalize(join(dirname(name), path))
              .split('\\')
              .join('/');
      expect(existsSync(join(repository, file)), `${target}: no such file`).toBe(true);
      if (anchor === undefined) continue;
      expect(statSync(join(repository, file)).isFile()).toBe(true);
      expect(anchorsOf(file), `${target}: no such heading`).toContain(anchor);
    }
  });

  test('every file of the repository that is named in code marks exists', () => {
    const folders = 'src|docs|test|scripts|examples|bench|models|native|wasm';
    for (const [, path] of prose.matchAll(new RegExp(`\`((?:${folders})/[\\w./-]*\\w)\``, 'g')))
      expect(existsSync(join(repository, path!)), path).toBe(true);
  });

  test('it names no place of one machine', () => {
    for (const place of [repository, homedir(), hostname(), '/home/', '/Users/'].filter(
      (place) => place.length > 4,
    ))
      expect(text).not.toContain(place);
  });
});

test('a link of each kind is seen', () => {
  expect(anchorsOf('docs/formats/exit-codes.md')).toContain('exit-codes');
  expect(documentNames()).toContain('README.md');
});
