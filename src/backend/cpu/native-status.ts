import { type BuildInfo, findBuiltLibrary } from './build-info.js';
import { loadNativeLibrary, type NativeLibrary } from './native-library.js';

/** From the plainest up; the index is the library's own number. */
export const instructionSets = ['baseline', 'avx2', 'avx512'] as const;
export type InstructionSet = (typeof instructionSets)[number];

/** Whether the native kernels can be used here, and why not. */
export interface NativeStatus {
  readonly available: boolean;
  /** One line for a person. */
  readonly reason: string;
  /** Those compiled in that this processor has, plainest first. */
  readonly instructionSets: readonly InstructionSet[];
  readonly libraryPath: string | null;
  readonly build: BuildInfo | null;
}

interface Loaded {
  readonly library: NativeLibrary | null;
  readonly status: NativeStatus;
}

let loaded: Loaded | null = null;

/** The library with its status; loaded once a process, because a shared library is mapped once. */
export function loadNative(): Loaded {
  loaded ??= tryLoading();
  return loaded;
}

/** What `doctor` prints. */
export function nativeStatus(): NativeStatus {
  return loadNative().status;
}

function tryLoading(): Loaded {
  const built = findBuiltLibrary();
  const unavailable = (reason: string): Loaded => ({
    library: null,
    status: { available: false, reason, instructionSets: [], libraryPath: built.path, build: built.info },
  });
  if (built.path === null) return unavailable(built.reason);
  try {
    const library = loadNativeLibrary(built.path);
    const present = library.instructionSets();
    const sets = instructionSets.filter((_, index) => ((present >> index) & 1) === 1);
    const best = sets.at(-1) ?? 'baseline';
    return {
      library,
      status: {
        available: true,
        reason: `built by ${built.info.compiler}; ${best} is the best that this processor has`,
        instructionSets: sets,
        libraryPath: built.path,
        build: built.info,
      },
    };
  } catch (error) {
    return unavailable(
      `the library cannot be loaded: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}
