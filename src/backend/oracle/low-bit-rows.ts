import { lowBitGroup, paddedInputs } from '../../checkpoint/low-bit.js';
import { type LowBitSection, lowBitLayout, unpackCodes } from '../../checkpoint/low-bit-layout.js';
import { subspan } from '../../memory/buffers.js';
import type { LowBitCopy } from '../ops.js';
import type { OracleMemory } from './oracle-memory.js';

/** A neuron of a copy, as certificates use it. */
export interface LowBitNeuron {
  readonly record: Float32Array; // see `LowBitLayout.records`
  /** Code times group scale, [Kp]. */
  readonly factors: Int32Array;
  readonly components: Int8Array; // [r]
}

/** Reads neurons of a copy. A returned one is valid until the next call. */
export function lowBitNeurons(memory: OracleMemory, copy: LowBitCopy): (neuron: number) => LowBitNeuron {
  const { span, format, inputs, outputs, directions } = copy;
  const layout = lowBitLayout(format, inputs, outputs, directions);
  const part = ({ byteOffset, byteLength }: LowBitSection) =>
    memory.bytes(subspan(span, byteOffset, byteLength));
  const records = part(layout.records);
  const codes = part(layout.codes);
  const high = part(layout.high);
  const scales = part(layout.groupScales);
  const components = part(layout.components);
  const groups = paddedInputs(inputs) / lowBitGroup;
  const factors = new Int32Array(groups * lowBitGroup);
  const group = new Int8Array(lowBitGroup);
  return (neuron) => {
    for (let g = 0; g < groups; g++) {
      const begin = g * lowBitGroup;
      if (format.bits === 8) {
        const row = neuron * layout.codeRowBytes + begin;
        group.set(new Int8Array(codes.buffer, codes.byteOffset + row, lowBitGroup));
      } else {
        const low = neuron * layout.codeRowBytes + g * 16;
        const highBytes = (format.bits - 4) * 4;
        const above = neuron * layout.highRowBytes + g * highBytes;
        unpackCodes(
          format.bits,
          codes.subarray(low, low + 16),
          high.subarray(above, above + highBytes),
          group,
        );
      }
      const scale = format.groups ? scales[neuron * layout.groupRowBytes + g]! : 1;
      for (let i = 0; i < lowBitGroup; i++) factors[begin + i] = group[i]! * scale;
    }
    const { recordFloats } = layout;
    return {
      record: new Float32Array(records.buffer, records.byteOffset + neuron * recordFloats * 4, recordFloats),
      factors,
      components: new Int8Array(components.buffer, components.byteOffset + neuron * directions, directions),
    };
  };
}

/** V in whole numbers, [r, Kp]. */
export function directionsOf(
  memory: OracleMemory,
  { span, format, inputs, outputs, directions }: LowBitCopy,
): Int16Array {
  const { byteOffset, byteLength } = lowBitLayout(format, inputs, outputs, directions).directions;
  const bytes = memory.bytes(subspan(span, byteOffset, byteLength));
  return new Int16Array(bytes.buffer, bytes.byteOffset, byteLength / 2);
}
