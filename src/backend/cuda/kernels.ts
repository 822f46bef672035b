import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileAtomic } from '../../base/atomic-file.js';
import { DefectError } from '../../base/errors.js';
import { waybillHome } from '../../checkpoint/prepared-location.js';
import type { BackendInfo } from '../backend.js';
import { type Compiler, compile, compileOptions, loadCompiler } from './compiler.js';
import { check, type DriverLibrary } from './driver.js';
import { type KernelUnit, kernelSourceDigest, readKernelUnits, unitOf } from './kernel-sources.js';

/** Compiled units of one device, and how they were come by. */
export interface KernelImages {
  readonly images: readonly { readonly name: string; readonly image: Uint8Array }[];
  readonly sourceDigest: string;
  readonly compiler: string;
  /** Units that were compiled now; the others came from the cache. */
  readonly compiled: number;
}

/** Where compiled kernels are kept. */
export function kernelCacheFolder(): string {
  return join(waybillHome(), 'kernels');
}

/**
 * Compiles the kernels for an architecture, or reads them from the cache, whose names are digests of source, options,
 * compiler version and architecture; `onNote` is told before it compiles. Throws `SetupError` `no-cuda-compiler`; a cache that
 * cannot be written is passed over.
 */
export async function kernelImages(
  architecture: number,
  numerics: BackendInfo['numerics'],
  onNote?: (text: string) => void,
): Promise<KernelImages> {
  const units = readKernelUnits(numerics);
  const compiler = loadCompiler();
  const options = compileOptions(compiler, architecture);
  const wanted = units.map((unit) => {
    const unitOptions = [...options, ...unit.options];
    const path = join(kernelCacheFolder(), `${cacheKey(unit, unitOptions, compiler)}.cubin`);
    return { unit, unitOptions, path, there: existsSync(path) };
  });
  const missing = wanted.filter(({ there }) => !there).length;
  if (missing > 0) onNote?.(`compiling kernels for the GPU, kept for the next time: ${missing} units`);
  let compiled = 0;
  const images = await Promise.all(
    wanted.map(async ({ unit, unitOptions, path, there }) => {
      if (there) return { name: unit.name, image: new Uint8Array(await readFile(path)) };
      const { image } = await compile(compiler, unit.name, unit.source, unitOptions);
      compiled += 1;
      await keep(path, image);
      return { name: unit.name, image };
    }),
  );
  return {
    images,
    sourceDigest: kernelSourceDigest(units),
    compiler: `NVRTC ${compiler.version}`,
    compiled,
  };
}

/** Digest of what decides the machine code; the architecture is among the options. */
export function cacheKey(
  unit: KernelUnit,
  options: readonly string[],
  compiler: Pick<Compiler, 'version'>,
): string {
  const hash = createHash('sha256');
  for (const part of [unit.name, unit.source, compiler.version, ...options])
    hash.update(`${part.length}:${part}`);
  return hash.digest('hex');
}

async function keep(path: string, image: Uint8Array): Promise<void> {
  try {
    await mkdir(kernelCacheFolder(), { recursive: true });
    await writeFileAtomic(path, image);
  } catch {
    // The kernels work all the same; the next start compiles again.
  }
}

const maxDynamicSharedAttribute = 8;
const staticSharedAttribute = 1;
const preferredCarveoutAttribute = 9;
/**
 * Of the memory that shared memory and the first-level cache divide, in per cent; -1 leaves it to the driver, with which decode
 * layers of 2.7B took 0.92 of the time on an H200.
 */
const sharedCarveout = -1;

/** Kernels of one context, by name. */
export class KernelModules {
  readonly #driver: DriverLibrary;
  readonly #sharedBytes: number;
  readonly #modules = new Map<string, bigint>();
  readonly #functions = new Map<string, bigint>();
  #carveout = sharedCarveout;

  constructor(driver: DriverLibrary, sharedBytes: number) {
    this.#driver = driver;
    this.#sharedBytes = sharedBytes;
  }

  load({ images }: KernelImages): void {
    for (const { name, image } of images) {
      const module = new BigUint64Array(1);
      const code = this.#driver.cuModuleLoadData(module, image);
      check(this.#driver, 'cuModuleLoadData', code, `load the kernels of "${name}"`);
      this.#modules.set(name, module[0]!);
    }
  }

  /** The function of a kernel, allowed all shared memory that the device has. */
  find(name: string): bigint {
    const known = this.#functions.get(name);
    if (known !== undefined) return known;
    const module = this.#modules.get(unitOf(name));
    if (module === undefined) throw new DefectError(`Cannot find the unit of kernel "${name}"`);
    const room = new BigUint64Array(1);
    const code = this.#driver.cuModuleGetFunction(room, module, name);
    check(this.#driver, 'cuModuleGetFunction', code, `find the kernel "${name}"`);
    const kernel = room[0]!;
    const fixed = new Int32Array(1);
    check(
      this.#driver,
      'cuFuncGetAttribute',
      this.#driver.cuFuncGetAttribute(fixed, staticSharedAttribute, kernel),
    );
    const dynamic = this.#sharedBytes - fixed[0]!;
    check(
      this.#driver,
      'cuFuncSetAttribute',
      this.#driver.cuFuncSetAttribute(kernel, maxDynamicSharedAttribute, dynamic),
      `give "${name}" ${dynamic} bytes of shared memory`,
    );
    this.#prefer(kernel);
    this.#functions.set(name, kernel);
    return kernel;
  }

  /** Another division of shared memory and cache for all kernels; -1 leaves it to the driver. */
  preferShared(percent: number): void {
    this.#carveout = percent;
    for (const kernel of this.#functions.values()) this.#prefer(kernel);
  }

  #prefer(kernel: bigint): void {
    check(
      this.#driver,
      'cuFuncSetAttribute',
      this.#driver.cuFuncSetAttribute(kernel, preferredCarveoutAttribute, this.#carveout),
    );
  }
}
