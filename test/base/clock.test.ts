import { expect, test } from 'vitest';
import { zonedTime } from '../../src/base/clock.js';

test.each([
  [0, 0, '1970-01-01T00:00:00.000Z'],
  [1_772_353_800_250, 60, '2026-03-01T09:30:00.250+01:00'],
  [1_772_353_800_250, -210, '2026-03-01T05:00:00.250-03:30'],
  [1_772_353_800_250, 345, '2026-03-01T14:15:00.250+05:45'],
])('%d in a zone of %d minutes is %s', (epochMs, offsetMinutes, text) => {
  expect(zonedTime(epochMs, offsetMinutes)).toBe(text);
  expect(new Date(text).getTime()).toBe(epochMs);
});

test('without a zone given, a wall time is that of the system and names the same instant', () => {
  const now = Date.now();
  expect(new Date(zonedTime(now)).getTime()).toBe(now);
});
