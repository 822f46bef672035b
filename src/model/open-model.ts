import type { WeightSource } from '../acquire/weight-source.js';
import type { Backend } from '../backend/backend.js';
import { DefectError } from '../base/errors.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import { llamaModel } from './llama.js';
import type { LayerCaches, Model } from './model.js';
import { optModel } from './opt.js';
import { bytesOf, ropeTable } from './rope-table.js';
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
  cache: LayerCaches,
  backend: Backend,
): Model {
  const { config } = description;
  if (cache.layers.length !== config.layers || cache.capacity !== workspace.limits.capacity) {
    throw new DefectError(
      `Cannot create the model: its KV cache has ${cache.layers.length} layers of ${cache.capacity} positions, ` +
        `wanted are ${config.layers} layers of ${workspace.limits.capacity}`,
    );
  }
  const parts = { description, source, workspace, cache, backend };
  if (config.family === 'opt') return optModel({ ...parts, config });
  const table = ropeTable(config, cache.capacity);
  backend.write(workspace.cosines!, bytesOf(table.cosines));
  backend.write(workspace.sines!, bytesOf(table.sines));
  return llamaModel({ ...parts, config }, table.digest);
}
