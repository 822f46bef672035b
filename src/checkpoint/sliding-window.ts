import { z } from 'zod';
import { InputError } from '../base/errors.js';
import type { JsonObject } from '../base/json.js';
import { flag, readFields, size } from './config-fields.js';
import type { LlamaVariant } from './llama-variants.js';

const schema = z.object({
  use_sliding_window: flag.nullish(),
  sliding_window: size.nullish(),
  max_window_layers: z
    .number({ error: 'a whole number from 0' })
    .refine((value) => Number.isSafeInteger(value) && value >= 0, { error: 'a whole number from 0' })
    .nullish(),
  layer_types: z.array(z.string(), { error: 'a list of strings' }).nullish(),
});

/**
 * Waybill attends to every earlier position. A window that some layer would use, and that is shorter than the longest
 * sequence, changes results, so it is refused (`sliding-window`); an unknown kind of layer too.
 */
export function refuseSlidingWindow(
  config: JsonObject,
  variant: LlamaVariant,
  layers: number,
  maxPositions: number,
): void {
  const fields = readFields(schema, config, 'config.json');
  const unknown = fields.layer_types?.find(
    (type) => type !== 'full_attention' && type !== 'sliding_attention',
  );
  if (unknown !== undefined) {
    throw new InputError(
      'unknown-layer-type',
      `Reading config.json failed: "layer_types" holds ${JSON.stringify(unknown.slice(0, 100))}, wanted is "full_attention"`,
      { layerType: unknown },
    );
  }
  const window = windowInUse(fields, variant, layers);
  if (window !== null && window < maxPositions) {
    throw new InputError(
      'sliding-window',
      `Reading config.json failed: a sliding window of ${window} positions is in use, wanted is attention over all ${maxPositions}`,
      { slidingWindow: window, maxPositions },
    );
  }
}

function windowInUse(fields: z.infer<typeof schema>, variant: LlamaVariant, layers: number): number | null {
  // transformers' configuration classes of Mistral and Qwen2 fill in a window of 4,096.
  const window = fields.sliding_window === undefined ? 4096 : fields.sliding_window;
  const byType = fields.layer_types?.includes('sliding_attention');
  switch (variant.slidingWindow) {
    case 'mistral':
      return window;
    case 'qwen2':
      if (fields.use_sliding_window !== true) return null;
      return (byType ?? layers > (fields.max_window_layers ?? 28)) ? window : null;
    case 'none':
      return byType === true ? (fields.sliding_window ?? 0) : null;
  }
}
