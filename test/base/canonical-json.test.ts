import { describe, expect, it } from 'vitest';
import { canonicalJson } from '../../src/base/canonical-json.js';
import { InputError } from '../../src/base/errors.js';

describe('canonical JSON', () => {
  it('gives the example of RFC 8785, section 3.2', () => {
    const value = JSON.parse(`{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\"\\/",
      "literals": [null, true, false]
    }`);
    expect(canonicalJson(value)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
  });

  it('sorts keys by UTF-16 code units (RFC 8785, section 3.2.3)', () => {
    const value = { '€': 1, '\r': 2, '\ufb33': 3, '1': 4, '😀': 5, '\u0080': 6, ö: 7 };
    expect(canonicalJson(value)).toBe('{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}');
  });

  it('takes null prototypes, the same object twice, and zero of either sign', () => {
    const shared = { a: 1 };
    expect(canonicalJson(Object.assign(Object.create(null), { x: shared, y: [shared], z: -0 }))).toBe(
      '{"x":{"a":1},"y":[{"a":1}],"z":0}',
    );
  });

  const cycle: unknown[] = [];
  cycle.push({ again: cycle });
  it.each([
    ['NaN', { a: [1, Number.NaN] }, '$.a[1]'],
    ['infinity', [Number.NEGATIVE_INFINITY], '$[0]'],
    ['undefined', { a: undefined }, '$.a'],
    ['undefined at the top', undefined, '$'],
    ['a hole', { a: new Array(1) }, '$.a[0]'],
    ['bigint', { a: { b: 1n } }, '$.a.b'],
    ['a function', { a: () => 1 }, '$.a'],
    ['a symbol', [Symbol('s')], '$[0]'],
    ['a lone high surrogate', { a: 'x\ud800y' }, '$.a'],
    ['a lone low surrogate', ['\udc00'], '$[0]'],
    ['a lone surrogate in a key', { '\ud800': 1 }, '$'],
    ['a date', { a: new Date(0) }, '$.a'],
    ['a map', new Map(), '$'],
    ['a typed array', { a: new Uint8Array(2) }, '$.a'],
    ['a cycle', cycle, '$[0].again'],
  ])('refuses %s and names the place', (_, value, place) => {
    let thrown: unknown;
    try {
      canonicalJson(value);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(InputError);
    expect(thrown).toMatchObject({ code: 'not-json', data: { place } });
  });
});
