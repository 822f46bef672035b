import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';

/** Written by scripts/build-native.mjs beside the library. */
const buildInfoSchema = z.object({
  library: z.string(),
  librarySha256: z.string(),
  sourceSha256: z.string(),
  compiler: z.string(),
  flags: z.array(z.string()),
  unitFlags: z.record(z.string(), z.array(z.string())),
  platform: z.string(),
  arch: z.string(),
});

export type BuildInfo = Readonly<z.infer<typeof buildInfoSchema>>;

/** A library on disk that is the one its build recorded, or why there is none. */
export type BuiltLibrary =
  | { readonly path: string; readonly info: BuildInfo; readonly reason: null }
  | { readonly path: null; readonly info: BuildInfo | null; readonly reason: string };

// The same depth below the package folder from src/ and from dist/.
const packageFolder = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

/** Where the build puts its results. */
export const nativeFolder = join(packageFolder, 'build', 'native');

/** Finds the library that `npm install` built in `folder`; checks its bytes against the digest in the build record. */
export function findBuiltLibrary(folder: string = nativeFolder): BuiltLibrary {
  const infoPath = join(folder, 'build-info.json');
  if (!existsSync(infoPath)) {
    return {
      path: null,
      info: null,
      reason: 'not built: run "npm run build:native" with a C++ compiler installed',
    };
  }
  let parsed: unknown;
  try {
    parsed = JSON.parse(readFileSync(infoPath, 'utf8'));
  } catch {
    return { path: null, info: null, reason: `the build record "${infoPath}" is not JSON` };
  }
  const checked = buildInfoSchema.safeParse(parsed);
  if (!checked.success)
    return { path: null, info: null, reason: `the build record "${infoPath}" is malformed` };
  const info = Object.freeze(checked.data);
  const path = join(folder, info.library);
  if (info.platform !== process.platform || info.arch !== process.arch) {
    return {
      path: null,
      info,
      reason: `built for ${info.platform} ${info.arch}, this is ${process.platform} ${process.arch}`,
    };
  }
  if (!existsSync(path)) return { path: null, info, reason: `the library "${path}" is missing` };
  const digest = createHash('sha256').update(readFileSync(path)).digest('hex');
  if (digest !== info.librarySha256) {
    return { path: null, info, reason: `the library "${path}" is not the one that its build recorded` };
  }
  return { path, info, reason: null };
}
