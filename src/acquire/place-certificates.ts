import type { TransferFile } from '../backend/backend.js';
import type { LowBitCopy } from '../backend/ops.js';
import { DefectError } from '../base/errors.js';
import { lowBitFormat } from '../checkpoint/low-bit.js';
import { roundedInputLayout } from '../checkpoint/low-bit-layout.js';
import type { LowBitModel, StoredCopy } from '../checkpoint/low-bit-model.js';
import type { ModelConfig } from '../checkpoint/model-config.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { HoldCause } from '../memory/causes.js';
import type { BoundCertificate } from './bound-matrix.js';
import type { PlacedMatrix } from './placement.js';

/** How opening gives out bytes and notes what is to be loaded into them. */
export interface CertificateRoom {
  allocate(label: string, cause: HoldCause, byteLength: number): Span;
  loadLater(
    id: string,
    layer: number | null,
    rows: number,
    target: Span,
    from: { readonly file: TransferFile; readonly position: number },
  ): void;
}

/** Where the rows of a matrix with a low-bit copy lie, and what proves its neurons inactive. */
export interface CertifiedPlace {
  readonly file: TransferFile;
  readonly filePosition: number;
  readonly certificate: BoundCertificate;
}

/**
 * The copies that a placement certifies with, null where it does not: then rows lie as the prepared form has them.
 * Throws `DefectError` where they are not those that were planned.
 */
export function requireLowBit(
  placed: readonly PlacedMatrix[],
  lowBit: LowBitModel | undefined,
): LowBitModel | null {
  const chosen = placed.filter(({ certificate }) => certificate !== undefined);
  if (chosen.length === 0) return null;
  for (const { id, certificate } of chosen) {
    if (lowBit === undefined) {
      throw new DefectError(`Cannot certify "${id}": no low-bit copies are open`, { id });
    }
    const { format, directions } = certificate!;
    const copy = lowBit.copy(id);
    if (copy?.format === format && copy.directions === directions) continue;
    const found =
      copy === null ? 'none' : `one of format "${copy.format}" with ${copy.directions} directions`;
    throw new DefectError(
      `Cannot certify "${id}": the copies "${lowBit.plan.name}" hold ${found}, the placement wants format "${format}" with ${directions} directions`,
      { id },
    );
  }
  return lowBit!;
}

/** Allocates the low-bit copies of a placement and the room for rounded inputs that all of them share. */
export function placeCertificates(
  lowBit: LowBitModel,
  placed: readonly PlacedMatrix[],
  maxRows: number,
  room: CertificateRoom,
): Map<string, CertifiedPlace> {
  const { description, copiesFile, rowsFile } = lowBit;
  const chosen = placed.filter(({ certificate }) => certificate !== undefined);
  const places = new Map<string, CertifiedPlace>();
  if (chosen.length === 0) return places;
  const matrices = new Map(description.matrices.map((matrix) => [matrix.id, matrix]));
  const sizes = chosen.map(
    ({ id, certificate }) =>
      roundedInputLayout(maxRows, matrices.get(id)!.inputs, certificate!.directions).byteLength,
  );
  const rounded = room.allocate('rounded input', 'workspace', Math.max(...sizes));
  // One buffer: each of its own would lose up to a page of device memory. Copies end at multiples of what they need.
  const bytes = chosen.reduce((sum, { id }) => sum + lowBit.copy(id)!.byteLength, 0);
  const all = room.allocate('low-bit copies', 'low-bit-weights', bytes);
  let begin = 0;
  for (const { id, layer } of chosen) {
    const matrix = matrices.get(id)!;
    const stored = lowBit.copy(id)!;
    const { byteOffset, byteLength } = stored;
    const span = subspan(all, begin, byteLength);
    begin += byteLength;
    room.loadLater(`${id}.low-bit`, layer, matrix.outputs, span, { file: copiesFile, position: byteOffset });
    places.set(id, {
      file: rowsFile,
      filePosition: lowBit.rowsPosition(id),
      certificate: {
        copy: lowBitCopy(stored, matrix, span),
        rounded,
        threshold: thresholdOf(description.config),
      },
    });
  }
  return places;
}

/** A stored copy as ops take it, from where it was loaded. */
export function lowBitCopy(
  { format, directions, directionExponent }: StoredCopy,
  { inputs, outputs }: MatrixDescription,
  span: Span,
): LowBitCopy {
  return { span, format: lowBitFormat(format), inputs, outputs, directions, directionExponent };
}

/** Pre-activations up to it are inactive. */
export function thresholdOf({ activation, activationThreshold }: ModelConfig): number {
  return activation === 'fatrelu' ? Math.fround(activationThreshold) : 0;
}
