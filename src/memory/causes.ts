/** Why bytes are held or moved. Every allocation and every transfer carries exactly one cause. */
export const holdCauses = [
  'dense-weights',
  'kept-rows',
  'packet-rows',
  'staging',
  'indices',
  'kv',
  'activations',
  'workspace',
  'runtime',
] as const;
export type HoldCause = (typeof holdCauses)[number];

/** Causes of bytes that cross the link between tiers (CPU: prepared file to arena). */
export const moveCauses = [
  'setup',
  'dense-weights',
  'packet-rows',
  'embedding-rows',
  'indices',
  'active-set-readback',
  'logits-readback',
] as const;
export type MoveCause = (typeof moveCauses)[number];
