// Removes from dist/ what the compiler once made from a source that is gone: it would be packed, and change the digest
// that receipts name the program by.
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const compiled = /(\.d\.ts|\.js\.map|\.js)$/;

for (const name of readdirSync(join(root, 'dist'), { recursive: true })) {
  if (compiled.test(name) && !existsSync(join(root, 'src', name.replace(compiled, '.ts')))) {
    rmSync(join(root, 'dist', name));
    console.log(`removed dist/${name}, whose source is gone`);
  }
}
