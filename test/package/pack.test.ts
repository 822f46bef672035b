import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, type TestContext, test } from 'vitest';
import { type CommandResult, repository, run, unreachable } from './npm.js';

interface Packed {
  readonly filename: string;
  readonly size: number;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'waybill-package-')));
const app = join(folder, 'app');
const home = { HF_HOME: join(folder, 'hf') };
const { version } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8')) as { version: string };
const generateArgs = [
  'generate',
  '--model',
  join(repository, 'models', 'opt-books-draft'),
  ...['--prompt', 'Hello', '-n', '4', '--json', '--quiet'],
];
let packed: Packed;

beforeAll(async () => {
  // Without scripts: `prepare` would build into the folder that other tests run from
  const args = ['pack', '--ignore-scripts', '--json', '--pack-destination', folder];
  const { stdout, stderr, exitCode } = await run('npm', args, repository);
  expect(exitCode, stderr).toBe(0);
  packed = (JSON.parse(stdout) as Packed[])[0]!;
}, 120_000);

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe('the packed package', () => {
  test('holds what runs it and what explains it', () => {
    const paths = packed.files.map(({ path }) => path);
    // Compiled where they are used: the native kernels by the C++ compiler, those for GPUs by the driver's library
    const sources = ['native', 'cuda'].flatMap((folder) =>
      readdirSync(join(repository, folder)).map((name) => `${folder}/${name}`),
    );
    for (const path of [
      ...[
        'package.json',
        'README.md',
        'LICENSE',
        'CHANGELOG.md',
        'bin/waybill.js',
        'scripts/build-native.mjs',
      ],
      ...['dist/index.js', 'dist/index.d.ts', 'dist/cli/main.js', 'dist/backend/cpu/kernels.wasm'],
      ...['docs/numerics.md', 'docs/formats/run-receipt.schema.json', 'examples/stream-tokens.mjs'],
      ...sources,
    ])
      expect(paths).toContain(path);
  });

  test('holds no tests, no models, no sources and nothing built for this machine', () => {
    const folders = new Set(packed.files.map(({ path }) => path.split('/')[0]));
    for (const name of ['test', 'models', 'src', 'build', 'bench', 'wasm', '.ci', 'node_modules'])
      expect(folders).not.toContain(name);
  });

  test('is small', () => {
    expect(packed.size).toBeLessThan(1_000_000);
    expect(packed.unpackedSize).toBeLessThan(4_000_000);
  });
});

describe('where npm runs no install scripts', () => {
  let installed: CommandResult;

  beforeAll(async () => {
    mkdirSync(app);
    writeFileSync(join(app, 'package.json'), '{"name":"app","private":true,"type":"module"}\n');
    const args = ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'];
    installed = await run('npm', [...args, join(folder, packed.filename)], app);
  }, 400_000);

  /** The tests below need the dependencies, which come from a registry. */
  function requireInstalled(context: TestContext): void {
    if (installed.exitCode === 0) return;
    const said = unreachable.exec(installed.stderr);
    context.skip(said !== null, `the registry cannot be reached (${said?.[0]})`);
    expect(installed.exitCode, installed.stderr).toBe(0);
  }

  test('npx finds the program', async (context) => {
    requireInstalled(context);
    const { stdout, exitCode } = await run('npx', ['--no-install', 'waybill', '--version'], app);
    expect(stdout).toBe(`${version}\n`);
    expect(exitCode).toBe(0);
  });

  test('WebAssembly kernels serve, and doctor says how to build the native ones', async (context) => {
    requireInstalled(context);
    expect(await kernelsInUse()).toMatch(/^wasm/);
    const { stdout } = await run('npx', ['--no-install', 'waybill', 'doctor'], app, home);
    expect(stdout).toMatch(/^absent\s+native kernels .*"npm run build:native" in "/m);
    expect(stdout).toContain(join(app, 'node_modules', 'waybill'));
  });

  test('the library is imported by its name, with types', async (context) => {
    requireInstalled(context);
    const script = `import { openModel } from 'waybill';
const session = await openModel({ model: ${JSON.stringify(generateArgs[2])}, contextPositions: 32 });
const generation = session.generate(['Hello'], { maxNewTokens: 4 });
for await (const { text } of generation) process.stdout.write(text);
await session.close();
`;
    writeFileSync(join(app, 'use.mjs'), script);
    const used = await run(process.execPath, ['use.mjs'], app, home);
    expect(used.stderr).toBe('');
    expect(used.stdout).toBe((await generated()).text);

    writeFileSync(
      join(app, 'use.ts'),
      `${script}// @ts-expect-error a model is named by a string\nawait openModel({ model: 1 });\n`,
    );
    const types = join(repository, 'node_modules', '@types');
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2023'];
    const compiler = join(repository, 'node_modules', 'typescript', 'bin', 'tsc');
    const compiled = await run(
      process.execPath,
      [compiler, ...options, '--types', 'node', '--typeRoots', types, 'use.ts'],
      app,
    );
    expect(compiled.stdout).toBe('');
    expect(compiled.exitCode).toBe(0);
  });

  test('the native kernels, built as doctor says, give the same logits', async (context) => {
    requireInstalled(context);
    const before = await generated();
    const built = await run('npm', ['run', 'build:native'], join(app, 'node_modules', 'waybill'));
    context.skip(/no C\+\+ compiler found/.test(built.stdout), 'there is no C++ compiler');
    expect(built.exitCode, built.stdout).toBe(0);
    expect(await kernelsInUse()).toMatch(/^native/);
    expect((await generated()).digests).toEqual(before.digests);
  }, 300_000);

  async function generated(): Promise<{ text: string; digests: unknown }> {
    const { stdout, stderr, exitCode } = await run(
      'npx',
      ['--no-install', 'waybill', ...generateArgs],
      app,
      home,
    );
    expect(exitCode, stderr).toBe(0);
    return JSON.parse(stdout) as { text: string; digests: unknown };
  }

  async function kernelsInUse(): Promise<string> {
    const { stdout } = await run('npx', ['--no-install', 'waybill', 'doctor', '--json'], app, home);
    const { findings } = JSON.parse(stdout) as { findings: { name: string; text: string }[] };
    return findings.find(({ name }) => name === 'kernels in use')!.text;
  }
});

describe('inside a clone', () => {
  test('npx runs the clone', async () => {
    const { stdout, stderr, exitCode } = await run(
      'npx',
      ['--no-install', 'waybill', '--version'],
      repository,
    );
    expect(exitCode, stderr).toBe(0);
    expect(stdout).toBe(`${version}\n`);
    // npm's own start has been seen to stall for a minute on a machine that was busy with files
  }, 240_000);

  test('a clone that was not built says so', async () => {
    const clone = join(folder, 'unbuilt');
    cpSync(join(repository, 'bin'), join(clone, 'bin'), { recursive: true });
    const { stderr, exitCode } = await run(process.execPath, [join('bin', 'waybill.js'), 'demo'], clone);
    expect(stderr).toBe('Cannot start waybill: it is not built; run "npm run build" in its folder\n');
    expect(exitCode).toBe(3);
  });
});
