/** Storage type of a weight or of the KV cache; widened exactly to F32 before use. */
export type StoredType = 'f32' | 'f16' | 'bf16';

/** Bytes of one element. */
export const storedBytes: Readonly<Record<StoredType, number>> = { f32: 4, f16: 2, bf16: 2 };
