import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { cudaStatus } from '../../src/backend/cuda/cuda-status.js';
import { loadDriver } from '../../src/backend/cuda/driver.js';
import { driverFunctions, type ForeignType } from '../../src/backend/cuda/foreign.js';
import {
  launchAttributeIds,
  launchAttributeLayout,
  launchConfigLayout,
} from '../../src/backend/cuda/launch-config.js';
import { openBackend, requireGpu } from '../../src/backend/open.js';
import { SetupError } from '../../src/base/errors.js';

const header = ['/usr/local/cuda/include/cuda.h', '/usr/include/cuda.h'].find(existsSync);
const text = header === undefined ? '' : readFileSync(header, 'utf8');

/** Whether a declared C type is passed as what the table says. */
function fits(declared: string, type: ForeignType): boolean {
  const pointer =
    /\*|\[/.test(declared) || /\bCU(stream|event|context|function|module|graph\w*)\b/.test(declared);
  switch (type) {
    case 'room':
    case 'text':
    case 'texts':
      return /\*/.test(declared);
    case 'handle':
      return pointer || /\bCUdeviceptr\b/.test(declared);
    case 'u64':
      return /unsigned long long|cuuint64_t/.test(declared);
    case 'size':
      return /\bsize_t\b/.test(declared);
    case 'uchar':
      return /unsigned char/.test(declared);
    case 'uint':
      return /unsigned int/.test(declared) && !/\*/.test(declared);
    case 'float':
      return /\bfloat\b/.test(declared);
    case 'int':
      // Enumerations and CUdevice are int.
      return /\bint\b|\bCUdevice\b|\bCUdevice_attribute\b|\bCUfunction_attribute\b|\bCUlimit\b|\bCUresult\b|\bCUstreamCaptureMode\b/.test(
        declared,
      );
  }
}

/** Parameter types of a function in cuda.h, under the name that it is exported by. */
function declaration(name: string): string[] {
  const define = new RegExp(`#define\\s+(\\w+)\\s+(?:__CUDA_API_PT(?:S|DS)Z\\()?${name}\\b`).exec(text)?.[1];
  const plain = define ?? name;
  const found = [plain, name]
    .map((one) => new RegExp(`CUresult CUDAAPI ${one}\\(([^)]*)\\);`).exec(text)?.[1])
    .find((one) => one !== undefined);
  if (found === undefined) throw new Error(`cuda.h declares no ${name}`);
  return found.trim() === 'void' ? [] : found.split(',').map((one) => one.trim());
}

// cuda.h of CUDA 13 declares a newer cuCtxCreate; drivers go on exporting this one.
const older = new Set(['cuCtxCreate_v2']);

describe.skipIf(header === undefined)(
  `foreign signatures${header === undefined ? ' (not run: there is no cuda.h)' : ''}`,
  () => {
    it.each(Object.entries(driverFunctions).filter(([name]) => !older.has(name)))(
      '%s is that of cuda.h',
      (name, types) => {
        const declared = declaration(name);
        expect(declared).toHaveLength(types.length);
        declared.forEach((one, index) => {
          expect(fits(one, types[index]!), `parameter ${index} of ${name}: "${one}" as ${types[index]}`).toBe(
            true,
          );
        });
      },
    );

    it('lays launch configurations out as cuda.h does', () => {
      expect(offsets('CUlaunchConfig_st')).toEqual(launchConfigLayout);
      expect(text).toMatch(/char pad\[8 - sizeof\(CUlaunchAttributeID\)\];\s*CUlaunchAttributeValue value;/);
      const union = /typedef union CUlaunchAttributeValue_union \{\s*char pad\[(\d+)\];/.exec(text);
      expect(launchAttributeLayout).toEqual({ value: 8, byteLength: 8 + Number(union?.[1]) });
      for (const [name, id] of Object.entries(launchAttributeIds)) {
        expect(Number(new RegExp(`\\b${name}\\s*= (\\d+)`).exec(text)?.[1]), name).toBe(id);
      }
    });
  },
);

/** Offsets of a structure of `unsigned int` and pointers, by the rules of C on 64 bits. */
function offsets(structure: string): Record<string, number> {
  const body = new RegExp(`^typedef struct ${structure} \\{([^}]*)\\}`, 'm').exec(text)?.[1] ?? '';
  const result: Record<string, number> = {};
  let at = 0;
  for (const [, type, name] of body.matchAll(/^\s*(unsigned int|CUstream|CUlaunchAttribute \*)\s*(\w+);/gm)) {
    const size = type === 'unsigned int' ? 4 : 8;
    at = Math.ceil(at / size) * size;
    result[name!] = at;
    at += size;
  }
  return result;
}

function hasDriver(): boolean {
  try {
    loadDriver();
    return true;
  } catch {
    return false;
  }
}

describe.skipIf(hasDriver())('without a GPU', () => {
  it('says what is missing, and what to install', async () => {
    const status = cudaStatus();
    expect(status.driver).toBeNull();
    expect(status.driverProblem).toMatch(/driver/);
    const opening = openBackend({ name: 'cuda', threads: 1, kernels: 'auto' });
    await expect(opening).rejects.toBeInstanceOf(SetupError);
    await expect(opening).rejects.toThrow(/^Cannot open CUDA: .*(install|GPU)/);
  });

  it('is found without a GPU before anything is opened', async () => {
    await expect(requireGpu()).rejects.toThrow(/^Cannot open CUDA: .*(install|GPU)/);
  });
});
