import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The repository, whatever the working directory. */
export const repository = join(import.meta.dirname, '..', '..', '..');

/** A fenced block as it stands in a document. */
export interface Fence {
  readonly language: string;
  /** Of the opening fence, from 1. */
  readonly line: number;
  readonly lines: readonly string[];
}

/**
 * One command line of a document. In `sh` blocks each line is one (a `\` at its end goes on); in `console` blocks those
 * that begin with `$ `, and the lines after it are what it prints on standard output, `…` standing for anything.
 * `# exit code N` at the end says what it exits with; 0 where nothing is said.
 */
export interface DocumentCommand {
  readonly line: number;
  readonly text: string;
  readonly exitCode: number;
  /** Null: nothing is said about the output. */
  readonly output: string | null;
}

/** Documents that people read in the repository, from its root, `/` between folders. */
export function documentNames(): string[] {
  const names = (folder: string): string[] =>
    readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.md'))
      .map((name) => `${folder}/${name}`);
  const ofRoot = readdirSync(repository).filter((name) => name.endsWith('.md'));
  return [...ofRoot, ...['docs', 'models', 'receipts'].flatMap(names)].sort();
}

export function readDocument(name: string): string {
  return readFileSync(join(repository, name), 'utf8');
}

/** All fenced blocks. @throws where a fence is not closed */
export function fencesOf(text: string): Fence[] {
  const fences: Fence[] = [];
  let open: { language: string; line: number; lines: string[] } | null = null;
  for (const [index, line] of text.split('\n').entries()) {
    const mark = /^\s*```(\S*)\s*$/.exec(line);
    if (mark === null) open?.lines.push(line);
    else if (open === null) open = { language: mark[1]!, line: index + 1, lines: [] };
    else {
      fences.push(open);
      open = null;
    }
  }
  if (open !== null) throw new Error(`the fence of line ${open.line} is not closed`);
  return fences;
}

/** Text outside fences, for links, prose and indented blocks. */
export function proseOf(text: string): string[] {
  const inside = new Set(
    fencesOf(text).flatMap(({ line, lines }) =>
      Array.from({ length: lines.length + 2 }, (_, index) => line + index),
    ),
  );
  return text.split('\n').map((line, index) => (inside.has(index + 1) ? '' : line));
}

/** The commands of a document's `sh` and `console` blocks, in order. */
export function commandsOf(text: string): DocumentCommand[] {
  return fencesOf(text).flatMap((fence) => {
    if (fence.language === 'sh') return shellCommands(fence);
    return fence.language === 'console' ? consoleCommands(fence) : [];
  });
}

function shellCommands({ line, lines }: Fence): DocumentCommand[] {
  const commands: DocumentCommand[] = [];
  let pending = '';
  for (const [index, text] of lines.entries()) {
    pending += text;
    if (pending.endsWith('\\')) {
      pending = pending.slice(0, -1);
      continue;
    }
    if (pending.trim() !== '' && !pending.startsWith('#'))
      commands.push(command(line + 1 + index, pending, null));
    pending = '';
  }
  return commands;
}

function consoleCommands({ line, lines }: Fence): DocumentCommand[] {
  const starts = lines.flatMap((text, index) => (text.startsWith('$ ') ? [index] : []));
  if (starts[0] !== 0) throw new Error(`the console block of line ${line} begins with no command`);
  return starts.map((start, position) => {
    const output = lines.slice(start + 1, starts[position + 1] ?? lines.length);
    return command(line + 1 + start, lines[start]!.slice(2), output.length === 0 ? null : output.join('\n'));
  });
}

function command(line: number, raw: string, output: string | null): DocumentCommand {
  const [, text, exitCode] = /^(.*?)(?:\s+# exit code (\d+))?\s*$/.exec(raw)!;
  return { line, text: text!, exitCode: Number(exitCode ?? 0), output };
}

/** Whether `actual` is what a document shows: trailing blanks of lines do not count, `…` stands for any text. */
export function matchesShown(actual: string, shown: string): boolean {
  const plain = (text: string): string => text.replace(/[ \t]+$/gm, '').replace(/\n+$/, '');
  const pattern = plain(shown)
    .split('…')
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('[^]*');
  return new RegExp(`^${pattern}$`).test(plain(actual));
}
