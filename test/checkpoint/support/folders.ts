import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll } from 'vitest';

const made: string[] = [];

afterAll(() => {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** A folder with these files (objects become JSON); removed after the test file. */
export function folderOf(files: Readonly<Record<string, Uint8Array | string | object>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'waybill-checkpoint-'));
  made.push(folder);
  for (const [name, content] of Object.entries(files)) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    const raw = typeof content === 'string' || content instanceof Uint8Array;
    writeFileSync(path, raw ? content : JSON.stringify(content));
  }
  return folder;
}
