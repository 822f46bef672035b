import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DefectError, SetupError } from '../../base/errors.js';
import { callAside, compilerFunctions, type ForeignLibrary, loadForeign } from './foreign.js';

type CompilerLibrary = ForeignLibrary<typeof compilerFunctions>;

/** The run-time compiler, loaded. */
export interface Compiler {
  readonly path: string;
  readonly version: string; // 13.0
  /** Compute capabilities times 10, ascending. */
  readonly architectures: readonly number[];
  readonly library: CompilerLibrary;
}

/** What one compilation gave: machine code of the device, or PTX where the compiler does not know the device yet. */
export interface CompiledKernels {
  readonly image: Uint8Array;
  readonly log: string;
}

const names = ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so'];

/**
 * Finds and loads the compiler: on the loader path, else in the folders where CUDA toolkits and the Python packages of
 * NVIDIA put it. Throws `SetupError` `no-cuda-compiler`.
 */
export function loadCompiler(paths: readonly string[] = candidates()): Compiler {
  const tried: string[] = [];
  for (const path of paths) {
    let library: CompilerLibrary;
    try {
      library = loadForeign(path, compilerFunctions);
    } catch {
      tried.push(path);
      continue;
    }
    const [major, minor, count] = [new Int32Array(1), new Int32Array(1), new Int32Array(1)];
    library.nvrtcVersion(major, minor);
    library.nvrtcGetNumSupportedArchs(count);
    const architectures = new Int32Array(count[0]!);
    library.nvrtcGetSupportedArchs(architectures);
    return { path, version: `${major[0]}.${minor[0]}`, architectures: [...architectures], library };
  }
  throw new SetupError(
    'no-cuda-compiler',
    `Cannot compile kernels: no CUDA run-time compiler (NVRTC) was found, install the CUDA toolkit 12 or 13 ("cuda-nvrtc", or "pip install nvidia-cuda-nvrtc") or put libnvrtc on the loader path`,
    { tried },
  );
}

function candidates(): string[] {
  const folders: string[] = [];
  for (const name of list('/usr/local').filter((entry) => /^cuda(-\d+(\.\d+)?)?$/.test(entry))) {
    folders.push(`/usr/local/${name}/lib64`, `/usr/local/${name}/targets/x86_64-linux/lib`);
  }
  folders.push('/opt/cuda/lib64', '/usr/lib/x86_64-linux-gnu', '/usr/lib64');
  // Packages of a Python environment that is active: .../nvidia/cu13/lib and .../nvidia/cuda_nvrtc/lib.
  for (const environment of [process.env.VIRTUAL_ENV, process.env.CONDA_PREFIX]) {
    if (environment === undefined || environment === '') continue;
    for (const python of list(join(environment, 'lib')).filter((entry) => entry.startsWith('python'))) {
      const packages = join(environment, 'lib', python, 'site-packages', 'nvidia');
      folders.push(...list(packages).map((entry) => join(packages, entry, 'lib')));
    }
  }
  const found = folders.flatMap((folder) => {
    const files = new Set(list(folder));
    return names.filter((name) => files.has(name)).map((name) => join(folder, name));
  });
  return [...names, ...found];
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder).sort().reverse();
  } catch {
    return [];
  }
}

/** Options that keep every operation a rounding of its own; docs/numerics.md depends on them. */
export const arithmeticOptions = ['--fmad=false', '-prec-div=true', '-prec-sqrt=true', '-ftz=false'] as const;

/** Options for a device; the target is its own machine code, or PTX of the newest architecture known before it. */
export function compileOptions(compiler: Compiler, architecture: number): string[] {
  const known = compiler.architectures.filter((value) => value <= architecture).at(-1);
  if (known === undefined) {
    throw new SetupError(
      'gpu-unknown-to-compiler',
      `Cannot compile kernels: the compiler "${compiler.path}" ${compiler.version} knows no architecture up to ${architecture / 10}`,
      { architecture, known: compiler.architectures },
    );
  }
  const target = known === architecture ? `sm_${known}` : `compute_${known}`;
  return [`--gpu-architecture=${target}`, '--std=c++17', ...arithmeticOptions];
}

/** Compiles beside the event loop. Rejects with `DefectError`, which holds the compiler's log, where a source does not compile. */
export async function compile(
  { library }: Compiler,
  name: string,
  source: string,
  options: readonly string[],
): Promise<CompiledKernels> {
  const program = new BigUint64Array(1);
  const created = library.nvrtcCreateProgram(program, source, name, 0, null, null);
  if (created !== 0) throw new DefectError(`Cannot compile "${name}": nvrtcCreateProgram gave ${created}`);
  const handle = program[0]!;
  try {
    const status = await callAside(library.nvrtcCompileProgram, handle, options.length, options);
    const log = text(
      (size) => library.nvrtcGetProgramLogSize(handle, size),
      (room) => library.nvrtcGetProgramLog(handle, room),
    );
    if (status !== 0) throw new DefectError(`Cannot compile "${name}": ${log}`, { name, status });
    const machineCode = options.some((option) => option.includes('=sm_'));
    const size = new BigUint64Array(1);
    (machineCode ? library.nvrtcGetCUBINSize : library.nvrtcGetPTXSize)(handle, size);
    const image = new Uint8Array(Number(size[0]!));
    (machineCode ? library.nvrtcGetCUBIN : library.nvrtcGetPTX)(handle, image);
    return { image, log };
  } finally {
    library.nvrtcDestroyProgram(program);
  }
}

function text(sizeOf: (size: BigUint64Array) => number, fill: (room: Uint8Array) => number): string {
  const size = new BigUint64Array(1);
  sizeOf(size);
  const room = new Uint8Array(Math.max(1, Number(size[0]!)));
  fill(room);
  return Buffer.from(room).toString('utf8').replace(/\0+$/, '').trim();
}
