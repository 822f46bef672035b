// Compiles native/*.cpp into build/native/libwaybill. Plain Node.js without dependencies: it runs on `npm install`.
// With --optional a failure is one line and exit code 0: Waybill then computes with its WebAssembly kernels.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const sourceFolder = join(root, 'native');
const outputFolder = join(root, 'build', 'native');
const infoPath = join(outputFolder, 'build-info.json');
const libraryName = process.platform === 'darwin' ? 'libwaybill.dylib' : 'libwaybill.so';

// Rounding is the contract (docs/numerics.md): no contraction of a product and a sum, none of the fast-math family,
// and no -march=native, because the library is chosen at run time and may be copied to another machine.
const commonFlags = [
  '-std=c++17',
  '-O3',
  '-fPIC',
  '-ffp-contract=off',
  '-fno-fast-math',
  '-fno-math-errno',
  '-fno-strict-aliasing',
  '-fvisibility=hidden',
  '-pthread',
];
const unitFlags = {
  'kernels-avx2.cpp': ['-mavx2', '-mf16c'],
  'kernels-avx512.cpp': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mf16c'],
};

class NotBuilt extends Error {}

function sources() {
  const names = readdirSync(sourceFolder).filter((name) => /\.(cpp|h)$/.test(name));
  const units = names.filter(
    (name) => name.endsWith('.cpp') && (process.arch === 'x64' || !(name in unitFlags)),
  );
  return { all: [...names.sort()], units: units.sort() };
}

function digestOf(...parts) {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}

function sourceDigest(names) {
  return digestOf(...names.flatMap((name) => [`${name}\0`, readFileSync(join(sourceFolder, name)), '\0']));
}

function findCompiler() {
  for (const name of ['c++', 'g++', 'clang++']) {
    const answer = spawnSync(name, ['--version'], { encoding: 'utf8' });
    if (answer.status === 0) return { name, version: answer.stdout.split('\n')[0].trim() };
  }
  throw new NotBuilt('no C++ compiler found (looked for "c++", "g++", "clang++")');
}

function run(command, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: sourceFolder, stdio: ['ignore', 'ignore', 'pipe'] });
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      errors += text;
    });
    child.on('error', (error) => reject(new NotBuilt(`cannot run "${command}": ${error.message}`)));
    child.on('close', (code) => {
      if (code === 0) return resolve();
      const first = errors.split('\n').find((line) => line.includes('error')) ?? errors.split('\n')[0];
      reject(new NotBuilt(`"${command} ${args.at(-3) ?? ''}" failed: ${first}`));
    });
  });
}

async function compileUnits(compiler, units, folder, flags) {
  const waiting = [...units];
  const worker = async () => {
    for (let unit = waiting.shift(); unit !== undefined; unit = waiting.shift()) {
      const object = join(folder, unit.replace(/\.cpp$/, '.o'));
      await run(compiler, [...flags, ...(unitFlags[unit] ?? []), '-c', unit, '-o', object]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(4, availableParallelism()) }, worker));
  return units.map((unit) => join(folder, unit.replace(/\.cpp$/, '.o')));
}

function upToDate(digest) {
  try {
    const info = JSON.parse(readFileSync(infoPath, 'utf8'));
    const library = readFileSync(join(outputFolder, info.library));
    return info.sourceSha256 === digest && info.librarySha256 === digestOf(library);
  } catch {
    return false;
  }
}

async function build() {
  if (process.platform === 'win32') throw new NotBuilt('Windows is not supported by the native kernels');
  if (process.arch !== 'x64' && process.arch !== 'arm64')
    throw new NotBuilt(`no kernels for "${process.arch}"`);
  if (!existsSync(sourceFolder)) throw new NotBuilt('the package holds no native sources');
  const { all, units } = sources();
  const flags = [...commonFlags];
  // The processor and the flags decide the bytes as much as the sources do.
  const digest = digestOf(
    sourceDigest(all),
    JSON.stringify([flags, unitFlags, process.platform, process.arch]),
  );
  if (upToDate(digest)) return 'Native kernels are up to date';
  const compiler = findCompiler();
  mkdirSync(outputFolder, { recursive: true });
  const folder = mkdtempSync(join(outputFolder, 'building-'));
  try {
    const objects = await compileUnits(compiler.name, units, folder, flags);
    const linked = join(folder, libraryName);
    // Threads may still run our code when Node.js unloads its libraries at exit: never unmap it.
    const stay = process.platform === 'linux' ? ['-Wl,-z,nodelete'] : [];
    await run(compiler.name, ['-shared', '-pthread', ...stay, ...objects, '-o', linked]);
    const info = {
      library: libraryName,
      librarySha256: digestOf(readFileSync(linked)),
      sourceSha256: digest,
      compiler: compiler.version,
      flags,
      unitFlags: process.arch === 'x64' ? unitFlags : {},
      platform: process.platform,
      arch: process.arch,
    };
    const written = join(folder, 'build-info.json');
    writeFileSync(written, `${JSON.stringify(info, null, 2)}\n`);
    renameSync(linked, join(outputFolder, libraryName));
    renameSync(written, infoPath);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return `Built native kernels with ${compiler.version}`;
}

const optional = process.argv.includes('--optional');
try {
  console.log(await build());
} catch (error) {
  const reason = error instanceof NotBuilt ? error.message : String(error?.message ?? error);
  console.log(`Native kernels were not built: ${reason}; Waybill uses its WebAssembly kernels`);
  if (!optional) process.exitCode = 1;
}
