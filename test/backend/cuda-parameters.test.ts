import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { kernelFolder, readKernelUnits, unitOf } from '../../src/backend/cuda/kernel-sources.js';
import { encodeParameters, parameterFields } from '../../src/backend/cuda/parameters.js';
import { tileName, tileVariants } from '../../src/backend/cuda/tile-variants.js';
import { activationCodes } from '../../src/backend/program.js';
import { cudaContractGroups, cudaFacts, planCases } from './cuda-support.js';

const sources = readdirSync(kernelFolder).map((name) => readFileSync(`${kernelFolder}${name}`, 'utf8'));

/** Fields of a structure of the kernels, with what an 8-byte field of their type holds. */
function declared(structure: string): [string, string][] {
  const body = sources
    .map((source) => new RegExp(`struct ${structure} \\{([^}]*)\\};`).exec(source)?.[1])
    .find((found) => found !== undefined);
  if (body === undefined) throw new Error(`no kernel source declares ${structure}`);
  return body
    .split('\n')
    .map((line) => line.replace(/\/\/.*/, '').trim())
    .filter((line) => line !== '')
    .map((line) => {
      const [, type, name] = /^(.*?)(\w+);$/.exec(line)!;
      const kind = type!.trim().endsWith('*') ? 'pointer' : { i64: 'integer', f64: 'real' }[type!.trim()];
      return [name!, kind ?? `unknown type ${type}`];
    });
}

describe('parameters of CUDA kernels', () => {
  it.each(Object.keys(parameterFields))('%s is declared alike in both languages', (structure) => {
    const fields = parameterFields[structure as keyof typeof parameterFields];
    expect(Object.entries(fields)).toEqual(declared(structure));
  });

  it('activations have the same numbers in both languages', () => {
    const body = /enum \{\s*activationRelu,([^}]*)\}/.exec(
      readFileSync(`${kernelFolder}numbers.cuh`, 'utf8'),
    )![0];
    const names = [...body.matchAll(/activation(\w+)/g)].map(([, name]) => name!.toLowerCase());
    expect(Object.keys(activationCodes).map((name) => name.replaceAll('_', ''))).toEqual(names);
    expect(Object.values(activationCodes)).toEqual(names.map((_, index) => index));
  });

  it('encodes pointers and counts as 64-bit integers, reals as binary64', () => {
    const view = new DataView(new ArrayBuffer(64));
    const bytes = encodeParameters(
      'ActivateParams',
      { count: 7, activation: -1, threshold: 0.5, x: 2 ** 46 },
      view,
    );
    expect(bytes).toBe(32);
    expect(view.getBigInt64(0, true)).toBe(7n);
    expect(view.getBigInt64(8, true)).toBe(-1n);
    expect(view.getFloat64(16, true)).toBe(0.5);
    expect(view.getBigInt64(24, true)).toBe(2n ** 46n);
  });

  it('writes every safe integer as its 64-bit form, and nothing else', () => {
    const view = new DataView(new ArrayBuffer(64));
    const encode = (x: number) =>
      encodeParameters('ActivateParams', { count: 0, activation: 0, threshold: 0, x }, view);
    const edges = [0, 1, -1, 2 ** 31, -(2 ** 31), 2 ** 32 - 1, 2 ** 32, -(2 ** 32), -(2 ** 32) - 1];
    for (const x of [...edges, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]) {
      encode(x);
      expect(view.getBigInt64(24, true)).toBe(BigInt(x));
    }
    for (const x of [0.5, Number.NaN, Infinity, 2 ** 53]) expect(() => encode(x)).toThrow(RangeError);
  });

  it('every planned kernel exists in the unit that it is looked for in', () => {
    const defined = new Map<string, string>();
    for (const { name: unit, source, options } of readKernelUnits()) {
      const type = /WEIGHT_NAME=(\w+)/.exec(options.join(' '))?.[1];
      for (const [, name] of source.matchAll(
        /extern "C" __global__ void (?:__launch_bounds__\([^\n]*\))?[\s\\]*(\w+(?:##\w+)*)\(/g,
      )) {
        if (!name!.includes('##')) defined.set(name!, unit);
        for (const [, ...values] of source.matchAll(
          /(?:LINEAR_ROWS|LINEAR_STREAM|SPARSE|ACTIVE_DIRECT|HELD_ROWS)\(type, E, (\d)(?:, \d+)?\)/g,
        )) {
          defined.set(name!.replace('##type##', type!).replace(/##R(##)?/, values[0]!), unit);
        }
        for (const [, bits, rows] of source.matchAll(/^QUANTISED_ROWS\((\d), (\d), \d+\)/gm)) {
          for (const end of ['c1', 'c2', 'any']) defined.set(`quantised_rows_q${bits}_r${rows}_${end}`, unit);
        }
        for (const [, format] of source.matchAll(/^CERTIFY_OF\((\w+), /gm)) {
          for (const [, rows] of source.matchAll(/CERTIFY\(name, bits, groups, (\d)\)/g)) {
            defined.set(`certify_${format}_r${rows}`, unit);
          }
        }
        for (const [, format, units] of source.matchAll(/^CERTIFY_NORMED\((\w+), \d, \w+, (\d+)\)/gm)) {
          defined.set(`certify_normed_${format}_u${units}`, unit);
        }
        for (const [, layout, ...sizes] of source.matchAll(
          /LINEAR_TILES\(type, E, (\w+), \w+, (\d+), (\d+), (\d+), (\d+)\)/g,
        )) {
          const [m, n, tm, tn] = sizes;
          const end = `${m}x${n}_${tm}x${tn}`;
          defined.set(
            name!
              .replace('##type##', type!)
              .replace('##layout##', layout!)
              .replace('##M##x##N##_##TM##x##TN', end),
            unit,
          );
        }
      }
    }
    for (const variant of tileVariants) {
      const layout = variant.layout === 'input-major' ? 'in' : 'out';
      for (const type of ['f32', 'f16', 'bf16']) {
        expect([...defined.keys()]).toContain(`linear_tiles_${type}_${layout}_${tileName(variant)}`);
      }
    }
    const planned = new Set(planCases(cudaContractGroups(), cudaFacts).map(({ kernel }) => kernel));
    expect(planned.size).toBeGreaterThan(30);
    expect([...planned].filter((kernel) => defined.get(kernel) !== unitOf(kernel))).toEqual([]);
  }, 300_000);
});
