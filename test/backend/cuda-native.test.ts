import { describe, expect, it } from 'vitest';
import { kernelSourceDigest, readKernelUnits, unitOf } from '../../src/backend/cuda/kernel-sources.js';
import { at } from '../../src/backend/cuda/launch.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import {
  nativeRoomBytes,
  nativeTileBytes,
  nativeTileName,
  nativeTiles,
} from '../../src/backend/cuda/plan-native-stages.js';
import { fallibleOps, takeFailure } from '../../src/backend/cuda/submission-errors.js';
import { openNull } from '../../src/backend/null/open-null.js';
import { openBackend } from '../../src/backend/open.js';
import type { ActiveInputsOp, ActiveOutputsOp, LinearOp, Op, PlacedOp } from '../../src/backend/ops.js';
import { Pass } from '../../src/backend/pass.js';
import { encodeProgram } from '../../src/backend/program.js';
import type { StoredType } from '../../src/base/stored-type.js';
import { type Span, spanOf } from '../../src/memory/buffers.js';
import { cudaFacts } from './cuda-support.js';

const backend = openNull({ activeRows: () => [] });
const span = (byteLength: number): Span =>
  spanOf(backend.allocate({ label: 'test', cause: 'workspace', byteLength }));
const inputs = 256;
const outputs = 640;

function product(rows: number, type: StoredType = 'f16', more: Partial<LinearOp> = {}): LinearOp {
  return {
    kind: 'linear',
    rows,
    x: span(rows * inputs * 4),
    xStride: inputs,
    inputBegin: 0,
    inputEnd: inputs,
    outputs,
    matrix: { span: span(inputs * outputs * 4), type, layout: 'input-major', rowStride: outputs },
    out: span(rows * outputs * 4),
    outStride: outputs,
    outOffset: 0,
    continues: false,
    bias: span(outputs * 4),
    residual: null,
    numerics: 'native',
    ...more,
  };
}

const placed = (ops: readonly Op[]): PlacedOp[] => ops.map((op, index) => ({ op, label: `op ${index}` }));
const kernels = (...ops: Op[]) => planLaunches(placed(ops), cudaFacts).map(({ kernel }) => kernel);

describe('native numerics', () => {
  it.each([1, 2, 7, 8, 9, 64, 65, 512])('%d rows of a prompt go to tensor cores', (rows) => {
    const [kernel, ...more] = kernels(product(rows));
    expect(more).toEqual([]);
    expect(kernel).toMatch(/^native_tiles_f16_in_(64x64|128x128)$/);
    expect(unitOf(kernel!)).toBe('native.cu for f16');
  });

  it.each([65, 128, 512, 1025])('%d rows are rounded once, and products of one x share a launch', (rows) => {
    const nativeFacts = { ...cudaFacts, nativeRoom: 1 << 20 };
    const x = span(rows * inputs * 4);
    const three = [0, 1, 2].map(() => product(rows, 'f16', { x }));
    const [round, all, ...none] = planLaunches(placed(three), nativeFacts);
    expect(none).toEqual([]);
    expect(round).toMatchObject({
      kernel: 'native_round_f16_inputs',
      values: { rows, inputs, pitch: inputs, rounded: 1 << 20, status: cudaFacts.statusAddress },
    });
    const tile = nativeTiles.find((one) => all!.kernel.endsWith(`_${nativeTileName(one)}`))!;
    expect(all).toMatchObject({
      kernel: `native_stages_f16_${nativeTileName(tile)}`,
      grid: [Math.ceil(rows / tile.rows), Math.ceil(outputs / tile.columns), 3],
      threads: tile.threads,
      sharedBytes: nativeTileBytes(tile),
    });
    for (const { kernel } of [round!, all!]) expect(unitOf(kernel)).toBe('native-stages.cu for f16');
    for (const [which, { out, matrix }] of three.entries()) {
      expect(all!.values[`out${which}`]).toBe(at(out));
      expect(all!.values[`matrix${which}`]).toBe(at(matrix.span));
    }
    const activate: Op = {
      kind: 'activate',
      count: rows * outputs,
      activation: 'relu',
      threshold: 0,
      x: three[0]!.out,
    };
    const alone = planLaunches(placed([three[0]!, activate]), nativeFacts);
    expect(alone.map(({ values }) => values.activation)).toEqual([undefined, 0]);
  });

  it('what cannot be copied ahead, few rows and small GPUs keep the other kernels; long inputs come in groups of rows', () => {
    const nativeFacts = { ...cudaFacts, nativeRoom: 1 << 20 };
    const kernelsOf = (op: LinearOp, facts = nativeFacts) =>
      planLaunches(placed([op]), facts).map(({ kernel }) => kernel.replace(/_\d+x\d+$/, ''));
    const { matrix } = product(65);
    const odd = { ...matrix, rowStride: outputs + 4 };
    const turned = { ...matrix, layout: 'output-major', rowStride: inputs } as const;
    expect(kernelsOf(product(64))).toEqual(['native_tiles_f16_in']);
    expect(kernelsOf(product(65, 'f16', { matrix: odd }))).toEqual(['native_tiles_f16_in']);
    expect(kernelsOf(product(65, 'f16', { matrix: turned }))).toEqual(['native_tiles_f16_out']);
    expect(kernelsOf(product(65), { ...nativeFacts, sharedBytes: 65_536 })).toEqual(['native_tiles_f16_in']);
    const long = product(300, 'bf16', { xStride: 40_000, inputEnd: 40_000 });
    const launches = planLaunches(placed([long]), nativeFacts);
    expect(launches.map(({ values }) => values.rows)).toEqual([128, 128, 128, 128, 44, 44]);
    expect(launches[3]!.values.out0).toBe(at(long.out) + 128 * outputs * 4);
    expect(launches[4]!.values.x).toBe(at(long.x) + 256 * 40_000 * 4);
    expect(128 * 40_000 * 2).toBeLessThanOrEqual(nativeRoomBytes);
  });

  it('new tokens, and F32 weights, go to the portable kernels', () => {
    const { numerics, ...portable } = product(3);
    expect(numerics).toBe('native');
    expect(kernels(portable)[0]).toMatch(/^linear_(rows|stream)_f16_/);
    expect(kernels(product(3, 'f32'))[0]).toMatch(/^linear_(rows|stream)_f32_/);
    expect(kernels(product(300, 'f32'))[0]).toMatch(/^linear_tiles_f32_/);
  });

  it('is fused with nothing that would compute it by another rule', () => {
    const x = span(inputs * 4);
    const op = product(1, 'f16', { x });
    const norm: Op = {
      kind: 'norm',
      norm: 'rms',
      rows: 1,
      width: inputs,
      epsilon: 1e-5,
      x: span(inputs * 4),
      gamma: null,
      beta: null,
      out: x,
    };
    expect(kernels(norm, op, product(1, 'f16', { x }))).toEqual([
      'norm_rows',
      'native_tiles_f16_in_64x64',
      'native_tiles_f16_in_64x64',
    ]);
    const activate: Op = { kind: 'activate', count: outputs, activation: 'relu', threshold: 0, x: op.out };
    const [fused, ...none] = planLaunches(placed([op, activate]), cudaFacts);
    expect(none).toEqual([]);
    expect(fused!.values.activation).toBe(0);
    const active = span(4 * (1 + inputs));
    const compact: Op = { kind: 'compact', rows: 1, width: inputs, x, active };
    const listed: ActiveInputsOp = {
      kind: 'active-inputs',
      rows: 1,
      x,
      xStride: inputs,
      active,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      outputs,
      matrix: op.matrix,
      out: op.out,
      continues: false,
      bias: null,
      residual: null,
      numerics: 'native',
    };
    expect(kernels(compact, listed)).toEqual(['compact', 'native_tiles_f16_in_64x64']);
    const up: ActiveOutputsOp = {
      kind: 'active-outputs',
      rows: 1,
      x,
      inputs,
      active,
      listBegin: 0,
      listEnd: -1,
      slots: null,
      matrix: { span: span(outputs * inputs * 2), type: 'bf16', layout: 'output-major', rowStride: inputs },
      out: op.out,
      outStride: outputs,
      bias: null,
      numerics: 'native',
    };
    const [ofOutputs] = planLaunches(placed([up]), cudaFacts);
    expect(ofOutputs!.kernel).toBe('native_tiles_bf16_out_64x64');
    expect(ofOutputs!.grid).toEqual([inputs / 64, 1, 1]); // as many as the list can hold
  });

  it('a program in native numerics is not taken for the portable one', () => {
    const native = product(5);
    const { numerics: _, ...portable } = native;
    expect(encodeProgram([native])).not.toEqual(encodeProgram([portable]));
  });

  it('a pass says which products are of a prompt', async () => {
    const seen: Op[] = [];
    const recording = {
      ...backend,
      submit: async (ops: readonly PlacedOp[]) => void seen.push(...ops.map(({ op }) => op)),
    };
    const { numerics: _, ...portable } = product(2);
    for (const numerics of ['native', 'portable'] as const) {
      const pass = new Pass(recording as unknown as ConstructorParameters<typeof Pass>[0]);
      pass.numerics = numerics;
      pass.emit('product', portable);
      await pass.flush();
    }
    expect(seen.map((op) => ('numerics' in op ? op.numerics : null))).toEqual(['native', null]);
  });

  it('an activation too large for the type of the weights is an error of its op', () => {
    const ops = placed([product(2), { ...product(2, 'f32') }]);
    const fallible = fallibleOps(ops);
    expect(fallible).toEqual([0]);
    const failure = takeFailure(Uint32Array.of(3, 0), ops, fallible);
    expect(failure).toMatchObject({ name: 'NumericsError', code: 'activation-overflow' });
    expect(failure!.message).toBe(
      'Cannot round the inputs of "op 0" to the type of its weights: a finite value is too large, use --numerics portable',
    );
  });

  it('kernels of portable numerics are the same in both modes; native ones come on top', () => {
    const portable = readKernelUnits();
    const native = readKernelUnits('native');
    expect(native.slice(0, portable.length)).toEqual(portable);
    expect(native.slice(portable.length).map(({ name }) => name)).toEqual([
      'native.cu for f16',
      'native.cu for bf16',
      'native-stages.cu for f16',
      'native-stages.cu for bf16',
    ]);
    for (const type of ['f16', 'bf16'] as const)
      for (const rows of [1, 4096])
        for (const layout of ['input-major', 'output-major'] as const) {
          const { matrix } = product(rows, type);
          const [kernel] = kernels(product(rows, type, { matrix: { ...matrix, layout } }));
          const [, where, m, n] = /_(in|out)_(\d+)x(\d+)$/.exec(kernel!)!;
          const { source } = native.find(({ name }) => name === unitOf(kernel!))!;
          expect(source).toMatch(new RegExp(`NATIVE_TILES\\(type, E, ${where}, \\w+, ${m}, ${n}, `));
        }
    const staged = native.find(({ name }) => name === 'native-stages.cu for f16')!.source;
    expect(staged).toContain('native_round_##type##_inputs(');
    for (const { rows, columns, threads, depth } of nativeTiles) {
      const [, warpsY, warpsX, i, j, stage, depths] = new RegExp(
        `NATIVE_STAGES\\(type, E, ${rows}, ${columns}, (\\d), (\\d), (\\d), (\\d), (\\d+), (\\d)\\)`,
      )
        .exec(staged)!
        .map(Number) as [number, number, number, number, number, number, number];
      expect([32 * warpsY * warpsX, 16 * warpsY * i, 8 * warpsX * j, stage, depths]).toEqual([
        threads,
        rows,
        columns,
        64,
        depth,
      ]);
    }
    expect(kernelSourceDigest(native)).not.toBe(kernelSourceDigest(portable));
  });

  it.each(['cpu', 'oracle'] as const)('is refused by backend "%s"', async (name) => {
    const opening = openBackend({ name, threads: 1, kernels: 'auto', numerics: 'native' });
    await expect(opening).rejects.toMatchObject({ name: 'UsageError', code: 'native-needs-gpu' });
    await expect(opening).rejects.toThrow(`Cannot compute in native numerics with backend "${name}"`);
  });
});
