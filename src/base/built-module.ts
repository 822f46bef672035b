import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { SetupError } from './errors.js';

// The same depth below the package folder from src/ and from dist/.
const builtFolder = new URL('../../dist/', import.meta.url);

/**
 * Location of a built file, given below `dist/`. Worker threads and WebAssembly modules are loaded from there even
 * when the importing code runs from its sources. Throws `SetupError` `not-built` where the file is absent.
 */
export function builtModule(path: string): URL {
  const url = new URL(path, builtFolder);
  if (existsSync(url)) return url;
  const file = fileURLToPath(url);
  throw new SetupError('not-built', `Cannot load "${file}": it is not built, run "npm run build"`, { file });
}
