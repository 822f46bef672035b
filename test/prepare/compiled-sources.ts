import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript';

/**
 * Puts the sources of base/ and checkpoint/ as JavaScript into `folder`, for tests that need a process of its own
 * which can be killed. Returns the folder that holds `base` and `checkpoint`.
 */
export async function compileSources(folder: string): Promise<string> {
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  await symlink(resolve('node_modules'), join(folder, 'node_modules'));
  const compilerOptions = {
    target: ScriptTarget.ES2023,
    module: ModuleKind.ESNext,
    verbatimModuleSyntax: true,
  };
  for (const part of ['base', 'checkpoint']) {
    for (const entry of await readdir(join('src', part), { recursive: true })) {
      if (!entry.endsWith('.ts')) continue;
      const source = await readFile(join('src', part, entry), 'utf8');
      const { outputText } = transpileModule(source, { compilerOptions });
      const path = join(folder, part, entry.replace(/\.ts$/, '.js'));
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, outputText);
    }
  }
  return folder;
}
