import { SetupError } from '../../base/errors.js';
import type { LowBitRowMaker, LowBitRows } from '../../checkpoint/low-bit-copy.js';
import { type InstructionSet, instructionSets, loadNative, nativeStatus } from './native-status.js';

/** As native/low-bit-writer.h numbers them. */
const typeNumbers = { f32: 0, f16: 1, bf16: 2 } as const;

/** Rows of low-bit copies by the native kernels; undefined where there are none, which the copy's own writer stands in for. */
export function nativeLowBitRows(
  set: InstructionSet | undefined = nativeStatus().instructionSets.at(-1),
): LowBitRowMaker | undefined {
  const { library } = loadNative();
  if (library === null || set === undefined) return undefined;
  const number = instructionSets.indexOf(set);
  return async (rows) => {
    const directions = rows.directions?.elements ?? null;
    const failed = await library.lowBitRows(number, wordsOf(rows), rows.weights, directions, rows.copy);
    if (failed === 0) return;
    throw new SetupError(
      'out-of-memory',
      'Cannot make rows of a low-bit copy: the system has no memory for it',
    );
  };
}

function wordsOf({ inputs, format, directions, layout, type, begin, end }: LowBitRows): Float64Array {
  const { records, recordFloats, codes, codeRowBytes, high, highRowBytes, groupScales, groupRowBytes } =
    layout;
  return Float64Array.of(
    inputs,
    format.bits,
    format.groups ? 1 : 0,
    directions?.count ?? 0,
    directions?.exponent ?? 0,
    typeNumbers[type],
    begin,
    end,
    records.byteOffset,
    recordFloats,
    codes.byteOffset,
    codeRowBytes,
    high.byteOffset,
    highRowBytes,
    groupScales.byteOffset,
    groupRowBytes,
    layout.components.byteOffset,
  );
}
