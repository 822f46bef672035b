import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sha256Hex } from '../base/digest.js';
import type { Subject } from './statement.js';

/** What of the package does the work; the rest (docs, tests) cannot change a result. */
const programFolders = ['bin', 'dist', 'native', 'cuda', 'build/native'];

/**
 * The program as a subject: SHA-256 over the lines `<sha256>  <path>` of its files, sorted by path, as `sha256sum`
 * would print them.
 */
export function programSubject(): Subject {
  const root = packageRoot();
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  const list = programFolders
    .flatMap((folder) => filesOf(root, folder))
    .sort()
    .map((path) => `${sha256Hex(readFileSync(join(root, path)))}  ${path}\n`)
    .join('');
  return { name: `program/waybill@${version}`, digest: { sha256: sha256Hex(Buffer.from(list, 'utf8')) } };
}

/** The folder that holds package.json, whether this file runs from sources or built. */
export function packageRoot(): string {
  return join(dirname(fileURLToPath(import.meta.url)), '..', '..');
}

function filesOf(root: string, folder: string): string[] {
  const path = join(root, folder);
  if (!existsSync(path)) return [];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) =>
      join(entry.parentPath, entry.name)
        .slice(root.length + 1)
        .split(sep)
        .join('/'),
    );
}
