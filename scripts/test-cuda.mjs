// Builds the CUDA tests so that they run under node alone, and runs them: node scripts/test-cuda.mjs [--build-only] [...].
// Needs dist/ (npm run build:ts). Where there is no GPU they say that they did not run.
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const out = join(root, 'build', 'cuda-tests');

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const project = {
  extends: '../../tsconfig.json',
  compilerOptions: {
    noEmit: false,
    incremental: false,
    tsBuildInfoFile: null,
    rootDir: '../..',
    outDir: '.',
    noUnusedLocals: false,
  },
  files: ['../../test/cuda/main.ts', '../../test/cuda/report.ts', '../../test/cuda/find-runs.ts'],
  include: [],
};
writeFileSync(join(out, 'tsconfig.json'), JSON.stringify(project));
const compiled = spawnSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', out], {
  stdio: 'inherit',
});
if (compiled.status !== 0) process.exit(compiled.status ?? 1);
// The tests run on the program as built, which finds its kernels and modules from its own place.
rmSync(join(out, 'src'), { recursive: true });
symlinkSync('../../dist', join(out, 'src'));
const runner = join(out, 'node_modules', 'vitest');
mkdirSync(runner, { recursive: true });
writeFileSync(join(runner, 'package.json'), '{"name":"vitest","type":"module","exports":"./index.js"}\n');
writeFileSync(join(runner, 'index.js'), "export * from '../../test/cuda/mini-runner.js';\n");
writeFileSync(join(out, 'package.json'), '{"type":"module"}\n');

const options = process.argv.slice(2);
if (!options.includes('--build-only')) {
  const run = spawnSync(process.execPath, [join(out, 'test/cuda/main.js'), ...options], {
    cwd: root,
    stdio: 'inherit',
  });
  process.exitCode = run.status ?? 1;
}
