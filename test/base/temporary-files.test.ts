import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';

test('a process that ends by itself leaves no file half-written', () => {
  const folder = mkdtempSync(join(tmpdir(), 'waybill-exit-'));
  const dist = (name: string): string => pathToFileURL(join('dist/base', name)).href;
  try {
    const { status } = spawnSync(process.execPath, [
      '--input-type=module',
      '-e',
      `import { openSync, writeSync } from 'node:fs';
       const { unfinishedFile } = await import(${JSON.stringify(dist('temporary-files.js'))});
       const place = (name) => ${JSON.stringify(folder)} + '/' + name;
       for (const name of ['left.tmp', 'whole']) {
         const file = unfinishedFile(place(name));
         writeSync(openSync(place(name), 'wx'), 'x');
         if (name === 'whole') file.settled();
       }
       unfinishedFile(place('never-made.tmp'));
       process.exit(130);`,
    ]);
    expect(status).toBe(130);
    expect(readdirSync(folder)).toEqual(['whole']);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
