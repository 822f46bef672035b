import type { Backend } from '../backend/backend.js';
import { BudgetError, InterruptedError } from '../base/errors.js';
import { storedBytes } from '../base/stored-type.js';
import type { PreparedModel } from '../checkpoint/prepared-model.js';
import { type DeviceBuffer, type Span, spanOf } from '../memory/buffers.js';
import type { Ledger } from '../memory/ledger.js';
import type { BoundMatrix } from './bound-matrix.js';
import type { LoadWatch } from './load-weights.js';
import type { PlacedMatrix, Placement, WeightPath } from './placement.js';

export interface MirrorOptions extends LoadWatch {
  readonly backend: Backend;
  readonly prepared: PreparedModel;
  readonly ledger: Ledger;
}

const heldPaths: ReadonlySet<WeightPath> = new Set(['resident', 'resident-sparse', 'q8', 'q4']);

/** Whether a matrix lies whole where arithmetic happens. */
export function isHeld({ paths }: PlacedMatrix): boolean {
  return heldPaths.has(paths.decode);
}

/** What a placement keeps in page-locked host memory, where a backend has a host tier. */
export function hostBytesOf({ matrices }: Placement): number {
  return matrices.filter((matrix) => !isHeld(matrix)).reduce((sum, { bytes }) => sum + bytes, 0);
}

/** @throws BudgetError `host-budget-exceeded` */
export function requireHostRoom(
  mirrored: readonly BoundMatrix[],
  { hostTier }: Backend,
  limit: number,
): void {
  const bytes = mirrored.reduce((sum, { placed }) => sum + placed.bytes, 0);
  const bounceBytes = hostTier?.bounceBytes ?? 0;
  if (bytes + bounceBytes <= limit) return;
  throw new BudgetError(
    'host-budget-exceeded',
    `Cannot keep what is not on the device in host memory: ${bytes} bytes of ${mirrored.length} matrices and ${bounceBytes} bytes for copies, the host budget is ${limit} bytes; give a larger --host-budget or --budget`,
    { hostBudgetBytes: limit, neededBytes: bytes + bounceBytes },
  );
}

/** Brings matrices that move into page-locked host memory, once; `held` gets their buffers as they come into being. */
export async function mirrorWeights(
  mirrored: readonly BoundMatrix[],
  { backend, prepared, ledger, signal, onProgress }: MirrorOptions,
  held: DeviceBuffer[],
): Promise<Map<BoundMatrix, Span>> {
  const mirrors = new Map<BoundMatrix, Span>();
  const total = mirrored.reduce((sum, { placed }) => sum + placed.bytes, 0);
  let loaded = 0;
  for (const matrix of mirrored) {
    if (signal?.aborted === true) {
      throw new InterruptedError('interrupted', 'Stopped loading weights: the run was aborted');
    }
    const { id, layer, bytes } = matrix.placed;
    const request = { label: id, cause: 'dense-weights', byteLength: bytes } as const;
    const [rows, columns] = prepared.tensor(id).shape as [number, number];
    const elementBytes = storedBytes[matrix.description.type];
    const buffer = await backend.hostTier!.mirror(
      matrix.file ?? prepared.weightsFile,
      matrix.filePosition,
      request,
      ...(matrix.strided ? [{ rows, columns, elementBytes }] : []),
    );
    held.push(buffer);
    mirrors.set(matrix, spanOf(buffer));
    ledger.move('host-mirror', bytes, rows, { layer, id, from: 'disk', to: 'host', pass: 0 });
    loaded += bytes;
    onProgress?.(loaded, total);
  }
  return mirrors;
}
