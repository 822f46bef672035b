import canonicalize from 'canonicalize';
import { InputError } from './errors.js';

/**
 * The canonical JSON text of plain data (RFC 8785). Refuses what JSON cannot hold instead of dropping or bending it.
 * @throws InputError `not-json` naming the place, for NaN, infinities, undefined, bigint, functions, symbols, lone
 *   surrogates, objects that are not plain, and cycles
 */
export function canonicalJson(value: unknown): string {
  refuse(value, '$', []);
  return canonicalize(value)!;
}

// With the u flag a surrogate pair is one character of another category.
const loneSurrogate = /\p{Cs}/u;

function refuse(value: unknown, place: string, ancestors: readonly object[]): void {
  switch (typeof value) {
    case 'boolean':
      return;
    case 'number':
      if (!Number.isFinite(value)) fail(place, String(value), 'a finite number');
      return;
    case 'string':
      if (loneSurrogate.test(value)) fail(place, 'a lone surrogate', 'well-formed text');
      return;
    case 'object':
      if (value !== null) refuseWithin(value, place, ancestors);
      return;
    default:
      fail(place, typeof value === 'undefined' ? 'undefined' : `a ${typeof value}`, 'JSON data');
  }
}

function refuseWithin(value: object, place: string, ancestors: readonly object[]): void {
  if (ancestors.includes(value)) fail(place, 'one of its own ancestors', 'a tree');
  const path = [...ancestors, value];
  if (Array.isArray(value)) {
    // An index loop, because forEach would pass over the holes of a sparse array.
    for (let index = 0; index < value.length; index++) refuse(value[index], `${place}[${index}]`, path);
    return;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    fail(place, `a ${value.constructor?.name ?? 'object with a prototype'}`, 'a plain object');
  }
  for (const [key, member] of Object.entries(value)) {
    if (loneSurrogate.test(key)) fail(place, 'a key with a lone surrogate', 'well-formed text');
    refuse(member, `${place}.${key}`, path);
  }
}

function fail(place: string, found: string, wanted: string): never {
  throw new InputError(
    'not-json',
    `Cannot write "${place}" as canonical JSON: it is ${found}, want ${wanted}`,
    {
      place,
      found,
    },
  );
}
