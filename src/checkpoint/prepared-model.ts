import type { StoredType } from '../base/stored-type.js';
import type { ModelDescription } from './model-description.js';
import type { NonFiniteWeights } from './non-finite.js';

/** One tensor of the prepared form, as its manifest lists it (docs/formats/prepared.md). */
export interface PreparedTensor {
  readonly id: string;
  readonly type: StoredType;
  /** Matrices: [stored rows, row elements], see `MatrixDescription.layout`; vectors: [width]; tables: [rows, columns]. */
  readonly shape: readonly number[];
  readonly byteOffset: number; // in the weights file, a multiple of 4096
  readonly byteLength: number;
  readonly sha256: string;
  /** False where the tensor holds an infinity or NaN: such a matrix is always acquired densely. */
  readonly finite: boolean;
  /** How many such weights, and the first by its place in the checkpoint's own tensor. */
  readonly nonFinite?: NonFiniteWeights | null;
}

/** An opened prepared directory: one manifest, one weights file, verified against its source checkpoint. */
export interface PreparedModel {
  readonly directory: string;
  readonly description: ModelDescription;
  /** SHA-256 of manifest.json; names the prepared form in plans and receipts. */
  readonly manifestDigest: string;
  /** SHA-256 over the source checkpoint's file digests. */
  readonly sourceDigest: string;
  /** Files of the source checkpoint by SHA-256, for receipts. */
  readonly sourceFiles: readonly {
    readonly name: string;
    readonly byteLength: number;
    readonly sha256: string;
  }[];
  readonly weightsFile: { readonly path: string; readonly descriptor: number; readonly byteLength: number };
  /** Throws `DefectError` for an unknown id. */
  tensor(id: string): PreparedTensor;
  close(): Promise<void>;
}
