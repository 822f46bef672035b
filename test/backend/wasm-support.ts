import { spawnSync } from 'node:child_process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Backend } from '../../src/backend/backend.js';
import type { Op } from '../../src/backend/ops.js';
import { type Span, spanOf } from '../../src/memory/buffers.js';

const builtBackend = fileURLToPath(new URL('../../dist/backend/cpu/wasm-backend.js', import.meta.url));

/** A buffer that holds the numbers. */
export function put(backend: Backend, label: string, values: Float32Array): Span {
  const buffer = backend.allocate({ label, cause: 'workspace', byteLength: values.byteLength });
  backend.write(spanOf(buffer), new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  return spanOf(buffer);
}

export async function floats(backend: Backend, span: Span): Promise<Float32Array> {
  return new Float32Array((await backend.read(span)).buffer);
}

/** An F32, input-major product of one row. */
export function matrixVector(x: Span, matrix: Span, out: Span, inputs: number, outputs: number): Op {
  return {
    kind: 'linear',
    rows: 1,
    x,
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: { span: matrix, type: 'f32', layout: 'input-major', rowStride: outputs },
    out,
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: null,
    residual: null,
  };
}

/** Runs a module text in a Node.js of its own; `dist` because that process cannot load TypeScript. */
export function runAlone(body: string): { status: number | null; stdout: string; stderr: string } {
  const text = `const { openWasm } = await import(${JSON.stringify(pathToFileURL(builtBackend).href)});\n${body}`;
  return spawnSync(process.execPath, ['--input-type=module', '-e', text], {
    encoding: 'utf8',
    timeout: 50_000,
  });
}
