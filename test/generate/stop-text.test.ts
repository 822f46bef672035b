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
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 }),
        (pieces, stops) => {
          const whole = pieces.join('');
          const cuts = stops.map((stop) => whole.indexOf(stop)).filter((at) => at >= 0);
          const expected = cuts.length === 0 ? whole : whole.slice(0, Math.min(...cuts));
          // A stop string is seen as soon as it is complete, so an earlier-ending one may cut before an earlier-starting one.
          const { text, stopped } = release(stops, pieces);
          expect(stopped).toBe(cuts.length > 0);
          expect(whole.startsWith(text)).toBe(true);
          for (const stop of stops) expect(text.includes(stop)).toBe(false);
          if (cuts.length === 0) expect(text).toBe(expected);
        },
      ),
      { seed: 20261130 },
    );
  });
});
