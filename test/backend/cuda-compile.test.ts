import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { arithmeticOptions } from '../../src/backend/cuda/compiler.js';
import { kernelFolder, readKernelUnits } from '../../src/backend/cuda/kernel-sources.js';
import { cudaContractGroups, cudaFacts, planCases } from './cuda-support.js';

const listed = spawnSync('nvcc', ['--list-gpu-arch'], { encoding: 'utf8' });
const known = (listed.stdout ?? '')
  .split('\n')
  .map((line) => Number(/^compute_(\d+)$/.exec(line.trim())?.[1]))
  .filter((architecture) => architecture >= 75)
  .sort((a, b) => a - b);
// Code differs at 9.0 alone: the oldest, the first with clusters, the newest.
const architectures = [...new Set([known[0], 90, known.at(-1)])].filter((one) => one !== undefined);
const missing = listed.status === 0 && known.length > 0 ? null : 'nvcc is not on the PATH';

// A unit holds its headers whole, and so names that it has no use for.
const unused = ['-diag-suppress', '177'];

describe.skipIf(missing !== null)(`kernel sources${missing === null ? '' : ` (not run: ${missing})`}`, () => {
  it.each(architectures)(
    'compile for compute capability %d / 10',
    async (architecture) => {
      const folder = mkdtempSync(join(tmpdir(), 'waybill-nvcc-'));
      try {
        const waiting = new Set<string>();
        const entries = new Set<string>();
        const units = readKernelUnits('native').filter(({ name }) => !/for (f32|bf16)/.test(name));
        for (const { name, source, options } of units) {
          const path = join(folder, name.replace(/\W/g, '-'));
          writeFileSync(`${path}.cu`, source);
          const flags = [
            '-ptx',
            `-arch=compute_${architecture}`,
            '-std=c++17',
            '-Werror',
            'all-warnings',
            ...unused,
          ];
          const target = ['-o', `${path}.ptx`, `${path}.cu`];
          await promisify(execFile)('nvcc', [...flags, ...arithmeticOptions, ...options, ...target]);
          for (const part of readFileSync(`${path}.ptx`, 'utf8').split('.entry ').slice(1)) {
            const entry = /^\w+/.exec(part)![0];
            entries.add(entry);
            if (part.includes('griddepcontrol.wait')) waiting.add(entry);
          }
        }
        if (architecture >= 90) {
          const hasty = planCases(cudaContractGroups(), cudaFacts)
            .filter(({ kernel, overlapsPrevious }) => overlapsPrevious && entries.has(kernel))
            .filter(({ kernel }) => !waiting.has(kernel));
          expect(hasty.map(({ kernel }) => kernel)).toEqual([]);
        }
        const sources = readdirSync(kernelFolder).filter((name) => name.endsWith('.cu'));
        expect(units.map(({ name }) => name.split(' ')[0]).sort()).toEqual(sources.sort());
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
    600_000,
  );
});
