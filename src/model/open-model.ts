import type { WeightSource } from '../acquire/weight-source.js';
import type { Backend } from '../backend/backend.js';
import { littleEndianBytes } from '../base/digest.js';
import { DefectError } from '../base/errors.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import type { KvCache } from '../memory/kv-cache.js';
import { llamaModel } from './llama.js';
import type { Model } from './model.js';
import { optModel } from './opt.js';
import { ropeTable } from './rope-table.js';
import type { Workspace } from './workspace.js';

/**
 * Puts a model together. Fills the workspace's rotary table where the model has one; allocates nothing.
 *
 * @throws DefectError when workspace, cache and description were not made for each other.
 */
export function createModel(
  description: ModelDescription,
  source: WeightSource,
  workspace: Workspace,
  cache: KvCache,
  backend: Backend,
): Model {
  const { config } = description;
  const { layers, kvHeads, headDim } = config;
  const wanted = JSON.stringify({ layers, kvHeads, headDim, capacity: workspace.limits.capacity });
  const { shape } = cache;
  const given = JSON.stringify({
    layers: shape.layers,
    kvHeads: shape.kvHeads,
    headDim: shape.headDim,
    capacity: shape.capacity,
  });
  if (given !== wanted)
    throw new DefectError(`Cannot create the model on KV cache ${given}: wanted is ${wanted}`);
  const parts = { description, source, workspace, cache, backend };
  if (config.family === 'opt') return optModel({ ...parts, config });
  const table = ropeTable(config, shape.capacity);
  backend.write(workspace.cosines!, littleEndianBytes(table.cosines));
  backend.write(workspace.sines!, littleEndianBytes(table.sines));
  return llamaModel({ ...parts, config }, table.digest);
}
