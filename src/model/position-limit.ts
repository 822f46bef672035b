import type { ModelConfig } from '../checkpoint/model-config.js';

/**
 * Positions that a model knows. A position table ends where it ends. Rotary models end at `max_position_embeddings`,
 * except that linear and dynamic scaling stretch it by their factor (the configuration keeps the length before
 * scaling), and YaRN reaches at least its original length times its factor.
 */
export function positionLimit(config: ModelConfig): number {
  if (config.family === 'opt') return config.maxPositions;
  const scaling = config.ropeScaling;
  switch (scaling.type) {
    case 'linear':
    case 'dynamic':
      return Math.max(config.maxPositions, Math.floor(config.maxPositions * scaling.factor));
    case 'yarn':
      return Math.max(config.maxPositions, Math.floor(scaling.originalPositions * scaling.factor));
    default:
      return config.maxPositions;
  }
}
