import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { findBuiltLibrary } from '../../src/backend/cpu/build-info.js';
import { nativeStatus } from '../../src/backend/cpu/native-status.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const status = nativeStatus();

function works(command: string): boolean {
  return spawnSync(command, ['--version']).status === 0;
}

function run(command: string, args: string[], cwd: string): string {
  const result = spawnSync(command, args, { cwd, encoding: 'utf8', maxBuffer: 1 << 28 });
  if (result.status !== 0) throw new Error(`"${command} ${args.join(' ')}" failed: ${result.stderr}`);
  return result.stdout;
}

describe('build of the native kernels', () => {
  it('does without a compiler when optional, in one line that says why, and fails otherwise', () => {
    const folder = mkdtempSync(join(tmpdir(), 'waybill-build-'));
    try {
      cpSync(join(root, 'native'), join(folder, 'native'), { recursive: true });
      mkdirSync(join(folder, 'scripts'));
      cpSync(join(root, 'scripts', 'build-native.mjs'), join(folder, 'scripts', 'build-native.mjs'));
      const build = (...args: string[]) =>
        spawnSync(process.execPath, ['scripts/build-native.mjs', ...args], {
          cwd: folder,
          encoding: 'utf8',
          env: { PATH: join(folder, 'nothing') },
        });
      const optional = build('--optional');
      expect(optional.status).toBe(0);
      expect(optional.stdout).toMatch(
        /^Native kernels were not built: .*; Waybill uses its WebAssembly kernels\n$/,
      );
      expect(build().status).toBe(1);
      expect(existsSync(join(folder, 'build'))).toBe(false);
      expect(findBuiltLibrary(join(folder, 'build', 'native')).reason).toMatch(/not built/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('notices a library that is not the recorded one', () => {
    const built = findBuiltLibrary();
    if (built.path === null) return expect(status.available).toBe(false);
    const folder = mkdtempSync(join(tmpdir(), 'waybill-build-'));
    try {
      cpSync(join(root, 'build', 'native', 'build-info.json'), join(folder, 'build-info.json'));
      expect(findBuiltLibrary(folder).reason).toMatch(/is missing/);
      cpSync(join(root, 'native', 'api.h'), join(folder, built.info.library));
      expect(findBuiltLibrary(folder).reason).toMatch(/not the one that its build recorded/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('is skipped when the sources are those of the last build', () => {
    if (!status.available) return;
    const before = readFileSync(join(root, 'build', 'native', 'build-info.json'));
    expect(run(process.execPath, ['scripts/build-native.mjs'], root)).toBe('Native kernels are up to date\n');
    expect(readFileSync(join(root, 'build', 'native', 'build-info.json'))).toEqual(before);
  });
});

const tools = status.available && works('nm') && works('objdump') && works('c++') && process.arch === 'x64';
const why = tools ? '' : ' (not run: needs a built x64 library, c++, nm and objdump)';

describe.skipIf(!tools)(`instruction sets stay apart${why}`, () => {
  // Without optimisation nothing is inlined: whatever the linker could share between units shows itself.
  it.each(['baseline', 'avx2', 'avx512'])(
    'the %s unit gives away its entries alone',
    (name) => {
      const folder = mkdtempSync(join(tmpdir(), 'waybill-unit-'));
      try {
        const flags = status.build!.flags.filter((flag) => flag !== '-O3');
        const unit = `kernels-${name}.cpp`;
        const object = join(folder, 'unit.o');
        run(
          'c++',
          [...flags, '-O0', ...(status.build!.unitFlags[unit] ?? []), '-c', unit, '-o', object],
          join(root, 'native'),
        );
        const symbols = run('nm', ['-g', '--defined-only', object], root).trim().split('\n');
        expect(symbols.map((line) => line.split(' ').at(-1)).sort()).toEqual([
          ...(name === 'baseline' ? ['waybill_low_bit_room_baseline'] : []),
          `waybill_low_bit_rows_${name}`,
          `waybill_run_${name}`,
          `waybill_sum_${name}`,
        ]);
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
    60_000,
  );

  it('no function outside the units uses wide registers, and nothing anywhere fuses a product with a sum', () => {
    const text = run('objdump', ['-d', '-C', '--no-show-raw-insn', status.libraryPath!], root);
    let name = '';
    let functions = 0;
    for (const line of text.split('\n')) {
      const start = line.match(/^[0-9a-f]+ <(.*)>:$/);
      if (start) {
        name = start[1]!;
        functions++;
        continue;
      }
      if (/\bvfn?m(add|sub)/.test(line)) throw new Error(`"${name}" fuses: ${line}`);
      const wide = /%[yz]mm/.test(line) && !/anonymous namespace|waybill_(run|sum)_avx/.test(name);
      if (wide) throw new Error(`"${name}" uses wide registers: ${line}`);
    }
    expect(functions).toBeGreaterThan(50);
  });
});
