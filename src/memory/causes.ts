/** Why bytes are held or moved. Every allocation and every transfer carries exactly one cause. */
export const holdCauses = [
  'dense-weights',
  'kept-rows',
  'packet-rows',
  /** Low-bit copies of first projections or gates, which certificates are computed from. */
  'low-bit-weights',
  /** Rows that an LRU may keep; rows of a fixed hot set; what finds them. */
  'retention-slots',
  'retention-resident',
  'retention-index',
  /** Room for guessed rows. */
  'forecast-rows',
  'staging',
  'indices',
  'kv',
  'activations',
  'workspace',
  'runtime',
  /** Samples that a lab run keeps of the session. */
  'recording',
] as const;
export type HoldCause = (typeof holdCauses)[number];

/** Causes of bytes that cross the link between tiers (CPU: prepared file to arena). */
export const moveCauses = [
  'setup',
  /** From disk to page-locked host memory, once: what a GPU reads or is sent from there. */
  'host-mirror',
  'dense-weights',
  'packet-rows',
  /** Rows of a first projection or gate whose neurons no certificate proves inactive. */
  'uncertain-rows',
  /** Whole extents of 128 rows with at least one active row. */
  'extent-rows',
  /** Rows found on the device, and so moved by 0 bytes; rows that had to come. */
  'retention-hits',
  'retention-misses',
  /** Guessed rows, charged when it is known whether they were needed. */
  'forecast-used',
  'forecast-wasted',
  'embedding-rows',
  'indices',
  'active-set-readback',
  'logits-readback',
] as const;
export type MoveCause = (typeof moveCauses)[number];

/** Causes of weight bytes, and of the indices that travel with them, that cross the link while a model runs. */
export const weightMoveCauses = [
  'dense-weights',
  'packet-rows',
  'uncertain-rows',
  'extent-rows',
  'retention-misses',
  'forecast-used',
  'forecast-wasted',
  'embedding-rows',
  'indices',
] as const satisfies readonly MoveCause[];
