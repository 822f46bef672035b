import { expect, test } from 'vitest';
import {
  GuessLearner,
  GuessProjection,
  GuessTable,
  guessFeatures,
  recordedLength,
} from '../../src/acquire/guess-table.js';
import { seededRandom } from './support/random.js';

const width = 48;
const neurons = 200;
const seed = 41;

/** Tokens whose inputs decide which neurons are active: a neuron has its own direction. */
function world() {
  const random = seededRandom(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const topics = Array.from({ length: 4 }, () => Float32Array.from({ length: width }, normal));
  const directions = Array.from({ length: neurons }, (_, neuron) => topics[neuron % 4]!);
  return () => {
    const topic = topics[Math.floor(random() * 4)]!;
    const row = Float32Array.from(topic, (value) => value + 0.3 * normal());
    const activations = Float32Array.from(directions, (direction, neuron) => {
      if (neuron % 5 !== 0) return 0;
      const score = direction.reduce((sum, value, i) => sum + value * row[i]!, 0) / width;
      return Math.max(0, score - 0.5);
    });
    return { row, activations };
  };
}

test(`learned tables find the neurons of a token, unlearned ones do not (seed ${seed})`, () => {
  const token = world();
  const projection = new GuessProjection(width);
  const learner = new GuessLearner(neurons);
  const blind = new GuessLearner(neurons).weights();
  for (let count = 0; count < 300; count += 1) {
    const { row, activations } = token();
    learner.add(projection.features(row), activations);
  }
  const recorded = learner.weights();
  expect(recorded).toHaveLength(recordedLength(neurons));
  const hits = (weights: string) => {
    const table = new GuessTable(weights);
    const next = world();
    let [found, active] = [0, 0];
    for (let count = 0; count < 50; count += 1) {
      const { row, activations } = next();
      const wanted = [...activations.keys()].filter((neuron) => activations[neuron] !== 0);
      const guess = table.guess([projection.features(row)], wanted.length);
      expect([...guess]).toEqual([...guess].sort((a, b) => a - b));
      expect(new Set(guess).size).toBe(wanted.length);
      found += wanted.filter((neuron) => guess.includes(neuron)).length;
      active += wanted.length;
    }
    return found / active;
  };
  expect(hits(recorded)).toBeGreaterThan(0.9);
  expect(hits(blind)).toBeLessThan(0.3);
});

test('the projection is fixed, and guesses for several tokens are the likeliest of any', () => {
  const features = new GuessProjection(4).features(Float32Array.of(1, 2, 4, 8));
  expect(features).toHaveLength(guessFeatures);
  expect([...features].every((value) => Math.abs(value) <= 7.5 && (value * 2) % 2 !== 0)).toBe(true);
  expect([...new GuessProjection(4).features(Float32Array.of(1, 2, 4, 8))]).toEqual([...features]);
  const learner = new GuessLearner(3);
  const at = (value: number) => new Float64Array(guessFeatures).fill(value);
  for (let count = 0; count < 20; count += 1) {
    learner.add(at(1), Float32Array.of(1, 0, 0));
    learner.add(at(-1), Float32Array.of(0, 1, 0));
  }
  const table = new GuessTable(learner.weights());
  expect([...table.guess([at(1)], 1)]).toEqual([0]);
  expect([...table.guess([at(-1)], 1)]).toEqual([1]);
  expect([...table.guess([at(1), at(-1)], 2)]).toEqual([0, 1]);
});
