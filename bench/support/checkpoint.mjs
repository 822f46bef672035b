// The synthetic checkpoints of benchmarks, made where they are not there yet.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { makeCheckpoint } from '../../dist/checkpoint/synthetic.js';
import { syntheticShapes } from '../../dist/checkpoint/synthetic-opt.js';

/** F16, 3.4 % of rows active; `further` options of `makeCheckpoint`. */
export async function makeWhereAbsent(directory, shape = 'opt-1.3b', further = {}) {
  if (existsSync(join(directory, 'config.json'))) return;
  process.stderr.write(`making an ${shape} shape in ${directory}\n`);
  await makeCheckpoint({
    directory,
    shape: syntheticShapes[shape],
    active: 0.034,
    seed: 1,
    type: 'f16',
    ...further,
  });
}
