import { type CaseGroup, oddSizes } from './case.js';
import type { CaseRandom } from './case-random.js';

/** Greedy tokens: for backends with a host tier alone. */
export function greedyGroups(): CaseGroup[] {
  const sizes = [...oddSizes, 1000, 1024, 8192, 9001, 50_272];
  return [
    {
      name: 'greedy',
      cases: sizes.flatMap((width) =>
        [1, 3].map((rows) => ({
          name: `${rows} rows, ${width} wide`,
          build: (bench) => {
            const values = new Float32Array(rows * width);
            for (let t = 0; t < rows; t += 1) values.set(row(bench.random, width), t * width);
            const x = bench.floats('x', values);
            return [{ kind: 'greedy', rows, width, x, out: bench.integers('out', new Array(rows).fill(7)) }];
          },
        })),
      ),
    },
  ];
}

/** Values of which many are equal, zeros of either sign among them; in some rows one that is not finite. */
function row(random: CaseRandom, width: number): Float32Array {
  const values = random.floats(width, random.pick(['plain', 'zero', 'edges']));
  const finite = values.map((value) => (Number.isFinite(value) ? value : 1));
  if (random.chance(0.4)) {
    const largest = Math.max(...finite.slice(0, 1000), 0);
    for (let copies = 0; copies < 3; copies += 1) finite[random.below(width)] = largest;
  }
  if (random.chance(0.3)) {
    finite[random.below(width)] = random.pick([
      Number.NaN,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
    ]);
  }
  return finite;
}
