export type { StoredType } from '../../base/stored-type.js';

/** Types of weights that kernels are made for. */
export const storedTypes = ['f32', 'f16', 'bf16'] as const;
