import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { StopText } from '../../src/generate/stop-text.js';

function release(stops: string[], pieces: string[]): { text: string; stopped: boolean } {
  const stopText = new StopText(stops);
  const text = pieces.map((piece) => stopText.push(piece)).join('') + stopText.flush();
  return { text, stopped: stopText.stopped };
}

describe('StopText', () => {
  test('cuts at a stop string that comes in pieces', () => {
    expect(release(['\n\n'], ['one\n', '\ntwo'])).toEqual({ text: 'one', stopped: true });
  });

  test('releases what only looked like a stop string', () => {
    expect(release(['END'], ['the E', 'N', 'gine'])).toEqual({ text: 'the ENgine', stopped: false });
  });

  test('of two stop strings the earlier one in the text wins', () => {
    expect(release(['later', 'soon'], ['sooner or later']).text).toBe('');
  });

  test('gives the same text however it is cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 4 }), { maxLength: 12 }),
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 4 }), {
          minLength: 1,
          maxLength: 3,
        }),
        (pieces, stops) => {
          const whole = pieces.join('');
          const { text, stopped } = release(stops, pieces);
          expect({ text, stopped }).toEqual(release(stops, [...whole]));
          expect({ text, stopped }).toEqual(release(stops, [whole]));
          // The stop string that is complete first, the longest of those, found by looking at every end
          const ends = [...Array(whole.length + 1).keys()];
          const end = ends.find((at) => stops.some((stop) => whole.slice(0, at).endsWith(stop)));
          const longest = Math.max(
            ...stops.filter((stop) => whole.slice(0, end).endsWith(stop)).map(({ length }) => length),
          );
          expect(stopped).toBe(end !== undefined);
          expect(text).toBe(end === undefined ? whole : whole.slice(0, end - longest));
        },
      ),
      { seed: 20261130 },
    );
  });
});
