import { describe, expect, it } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { openWasm } from '../../src/backend/cpu/wasm-backend.js';
import type { LinearOp } from '../../src/backend/ops.js';
import { openOracle } from '../../src/backend/oracle/open-oracle.js';
import { spanOf } from '../../src/memory/buffers.js';
import { floats, put } from './wasm-support.js';

const inputs = 128;
const outputs = 512;
const positions = inputs * outputs;

// The kernel's short way holds for |x| below 2^15 and finite weights; both sides of each limit are met here.
const factors = {
  'ordinary numbers': (index: number) => Math.sin(index + 1),
  'numbers just below 2^15': (index: number) => (index % 2 === 0 ? 32767.998046875 : -32767.998046875),
  'one number of 2^15': (index: number) => (index === 77 ? 32768 : Math.cos(index)),
  'one infinity': (index: number) => (index === 5 ? Number.NEGATIVE_INFINITY : 1),
  'one NaN': (index: number) => (index === 100 ? Number.NaN : 1),
  'subnormal numbers': (index: number) => (index - 60) * 2 ** -149,
  'numbers whose products are subnormal': (index: number) => (index - 60) * 2 ** -127,
  'zeros of both signs': (index: number) => (index % 2 === 0 ? 0 : -0),
};

/** Every F16 bit pattern in turn, or every finite one. */
function halves(finite: boolean): Uint16Array {
  return Uint16Array.from({ length: positions }, (_, bits) =>
    finite && (bits & 0x7c00) === 0x7c00 ? bits & 0x83ff : bits,
  );
}

describe('F16 weights of the WebAssembly kernels', () => {
  for (const [name, factor] of Object.entries(factors)) {
    it(`give the oracle's sums with ${name}, every bit pattern, both layouts`, async () => {
      const oracle = openOracle();
      const backend = await openWasm({ threads: 2 });
      const x = Float32Array.from({ length: 3 * inputs }, (_, index) => factor(index % inputs));
      for (const finite of [true, false]) {
        for (const layout of ['input-major', 'output-major'] as const) {
          for (const rows of [1, 3]) {
            const run = async (on: Backend): Promise<Uint32Array> => {
              const out = put(on, 'out', new Float32Array(rows * outputs));
              const bytes = new Uint8Array(halves(finite).buffer);
              const matrix = on.allocate({
                label: 'matrix',
                cause: 'dense-weights',
                byteLength: bytes.length,
              });
              on.write(spanOf(matrix), bytes);
              const op: LinearOp = {
                kind: 'linear',
                rows,
                x: put(on, 'x', x.subarray(0, rows * inputs)),
                xStride: inputs,
                inputBegin: 0,
                inputEnd: inputs,
                outputs,
                matrix: {
                  span: spanOf(matrix),
                  type: 'f16',
                  layout,
                  rowStride: layout === 'input-major' ? outputs : inputs,
                },
                out,
                outStride: outputs,
                outOffset: 0,
                continues: false,
                bias: null,
                residual: null,
              };
              await on.submit([{ label: 'halves', op }]);
              const result = await floats(on, out);
              return new Uint32Array(
                result.map((value) => (Number.isNaN(value) ? Number.NaN : value)).buffer,
              );
            };
            expect(await run(backend)).toEqual(await run(oracle));
          }
        }
      }
      await backend.close();
      await oracle.close();
    });
  }
});
