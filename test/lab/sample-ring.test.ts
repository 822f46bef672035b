import { expect, test } from 'vitest';
import { mostSamples, recorderRoomBytes } from '../../src/lab/recorder-room.js';
import { SampleRing } from '../../src/lab/sample-ring.js';

const reading = (index: number, bytes: number | null) => ({
  elapsedNs: BigInt(index),
  residentSetBytes: bytes,
  heldBytes: null,
  deviceUsedBytes: bytes,
});

test('samples that fit are kept as they came', () => {
  const ring = new SampleRing();
  for (let index = 0; index < 10; index++) ring.push(reading(index, 100 + index));
  expect(ring.samples()).toHaveLength(10);
  expect(ring.samples()[3]).toEqual({
    elapsedNs: '3',
    residentSetBytes: '103',
    heldBytes: null,
    deviceUsedBytes: '103',
  });
  expect(ring.usedBytes).toBe(320);
});

test.each([mostSamples, mostSamples + 1, 3 * mostSamples + 7, 20 * mostSamples])(
  'of %i samples no more than the room are kept, in their order, with every peak',
  (count) => {
    for (const peak of [0, 1, Math.floor(count / 2), count - 2, count - 1]) {
      const ring = new SampleRing();
      for (let index = 0; index < count; index++) ring.push(reading(index, index === peak ? 999 : 5));
      const samples = ring.samples();
      expect(samples.length).toBeLessThanOrEqual(mostSamples);
      expect(samples.length).toBeGreaterThanOrEqual(mostSamples / 2);
      expect(ring.usedBytes).toBeLessThanOrEqual(recorderRoomBytes);
      const times = samples.map(({ elapsedNs }) => Number(elapsedNs));
      expect(times).toEqual([...times].sort((a, b) => a - b));
      expect(new Set(times).size).toBe(times.length);
      expect(samples.filter(({ residentSetBytes }) => residentSetBytes === '999')).toHaveLength(1);
      expect(times.at(-1)!).toBeGreaterThan(count * 0.9);
    }
  },
);
