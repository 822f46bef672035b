import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { BackendInfo } from '../backend.js';
import { type StoredType, storedTypes } from './weight-types.js';

/** The kernels' folder, at the same depth from src/ and from dist/. */
export const kernelFolder = fileURLToPath(new URL('../../../cuda/', import.meta.url));

/** Sources that are compiled once, and those that are compiled for each type of weights. */
const plainSources = [
  'rows.cu',
  'attention.cu',
  'quantised-rows.cu',
  'certify.cu',
  'certify-normed.cu',
  'retain-rows.cu',
  'move-rows.cu',
] as const;
const typedSources = [
  'linear-rows.cu',
  'linear-stream.cu',
  'linear-tiles.cu',
  'sparse.cu',
  'held-rows.cu',
  'native.cu',
  'native-stages.cu',
] as const;
/** Begins the names of those that are compiled and loaded in native numerics alone, for the types that tensor cores take. */
const nativeSources = 'native';

/** What is compiled by itself and loaded as a module. */
export interface KernelUnit {
  readonly name: string;
  /** With its includes put in, so that the run-time compiler needs no folder of headers. */
  readonly source: string;
  /** Definitions of macros. */
  readonly options: readonly string[];
}

const typeNames: Record<StoredType, string> = { f32: 'F32', f16: 'F16', bf16: 'Bf16' };

/** Macros that make a typed source the one for a type of weights. */
export function typeOptions(type: StoredType): string[] {
  return [`-DWEIGHT_NAME=${type}`, `-DWEIGHT_TYPE=${typeNames[type]}`];
}

/** In native numerics there are more kernels; those of portable numerics are the same in both. */
export function readKernelUnits(numerics: BackendInfo['numerics'] = 'portable'): KernelUnit[] {
  const all: KernelUnit[] = [
    ...plainSources.map((name) => ({ name, source: readSource(name), options: [] })),
    ...typedSources.flatMap((name) =>
      storedTypes.map((type) => ({
        name: `${name} for ${type}`,
        source: readSource(name),
        options: typeOptions(type),
      })),
    ),
  ];
  return all.filter(
    ({ name }) => !name.startsWith(nativeSources) || (numerics === 'native' && !name.endsWith(' f32')),
  );
}

const unitsByPrefix: readonly (readonly [string, string])[] = [
  ['attention_', 'attention.cu'],
  ['linear_rows_', 'linear-rows.cu'],
  ['linear_stream_', 'linear-stream.cu'],
  ['linear_tiles_', 'linear-tiles.cu'],
  ['native_tiles_', 'native.cu'],
  ['native_stages_', 'native-stages.cu'],
  ['native_round_', 'native-stages.cu'],
  ['quantised_rows_', 'quantised-rows.cu'],
  ['active_inputs_', 'sparse.cu'],
  ['active_direct_', 'sparse.cu'],
  ['output_rows_', 'sparse.cu'],
  ['retain_rows', 'retain-rows.cu'],
  ['move_runs', 'move-rows.cu'],
  ['guess_rows', 'move-rows.cu'],
  ['held_', 'held-rows.cu'],
  ['round_input', 'certify.cu'],
  ['certify_normed_', 'certify-normed.cu'],
  ['certify_', 'certify.cu'],
];

/** The unit that a kernel is in, by its name. */
export function unitOf(kernel: string): string {
  const source = unitsByPrefix.find(([prefix]) => kernel.startsWith(prefix))?.[1] ?? 'rows.cu';
  if (!typedSources.some((name) => name === source)) return source;
  return `${source} for ${storedTypes.find((type) => kernel.includes(`_${type}_`))}`;
}

function readSource(name: string): string {
  const seen = new Set<string>();
  const read = (file: string): string =>
    readFileSync(`${kernelFolder}${file}`, 'utf8').replace(/#include "([^"]+)"\n/g, (_, header: string) => {
      if (seen.has(header)) return '';
      seen.add(header);
      return read(header).replace('#pragma once\n', '');
    });
  return read(name);
}

/** SHA-256 over all sources; named in receipts. */
export function kernelSourceDigest(units: readonly KernelUnit[]): string {
  const hash = createHash('sha256');
  for (const { name, source } of units) hash.update(`${name} ${source.length}\n`).update(source);
  return hash.digest('hex');
}
