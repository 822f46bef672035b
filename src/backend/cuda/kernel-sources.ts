import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The kernels' folder, at the same depth from src/ and from dist/. */
export const kernelFolder = fileURLToPath(new URL('../../../cuda/', import.meta.url));

/** Translation units, each a module of its own. */
export const kernelUnits = [
  'rows.cu',
  'attention.cu',
  'sparse.cu',
  'linear-rows.cu',
  'linear-tiles.cu',
] as const;

export interface KernelUnit {
  readonly name: string;
  /** With its includes put in, so that the run-time compiler needs no folder of headers. */
  readonly source: string;
}

export function readKernelUnits(): KernelUnit[] {
  const header = readFileSync(`${kernelFolder}numbers.cuh`, 'utf8').replace('#pragma once\n', '');
  return kernelUnits.map((name) => ({
    name,
    source: readFileSync(`${kernelFolder}${name}`, 'utf8').replace('#include "numbers.cuh"\n', header),
  }));
}

/** SHA-256 over all sources; named in receipts. */
export function kernelSourceDigest(units: readonly KernelUnit[]): string {
  const hash = createHash('sha256');
  for (const { name, source } of units) hash.update(`${name} ${source.length}\n`).update(source);
  return hash.digest('hex');
}
