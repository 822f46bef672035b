// Builds dist/backend/cpu/kernels.wasm from wasm/*.as.ts. No runtime and no static data: the memory belongs to
// src/backend/cpu/wasm-backend.ts, every byte of it. Relaxed SIMD stays off, because its results vary.
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import asc from 'assemblyscript/asc';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const target = 'dist/backend/cpu/kernels.wasm';
const temporary = `dist/backend/cpu/kernels.${process.pid}.wasm`;

mkdirSync(join(root, dirname(target)), { recursive: true });
const { error, stderr } = await asc.main([
  'wasm/kernels.as.ts',
  '--baseDir',
  root,
  '--outFile',
  temporary,
  '--runtime',
  'stub',
  '-O3',
  '--noAssert',
  '--importMemory',
  '--sharedMemory',
  '--initialMemory',
  '1',
  '--maximumMemory',
  '65536',
  '--enable',
  'simd,threads,bulk-memory',
  '--use',
  'abort=',
]);
if (error) {
  rmSync(join(root, temporary), { force: true });
  console.error(stderr.toString());
  console.error(`Cannot build "${target}": ${error.message}`);
  process.exitCode = 1;
} else {
  renameSync(join(root, temporary), join(root, target));
}
