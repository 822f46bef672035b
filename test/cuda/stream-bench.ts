import type { PlanChoices } from '../../src/backend/cuda/launch.js';
import { type StreamTile, type StreamTuning, streamTiles } from '../../src/backend/cuda/stream-shape.js';
import type { LinearOp, Op } from '../../src/backend/ops.js';
import { type Span, subspan } from '../../src/memory/buffers.js';
import { decodeLayers, type OperandRoom } from './decode-layers.js';

const hidden = 2560;
const ffn = 10_240;
const vocabulary = 50_272;
const mebibyte = 1024 * 1024;

/** Where operands come from, and what times choices of planning against each other. */
export interface StreamBench extends OperandRoom {
  clear(): void;
  compare(
    work: string,
    ops: readonly Op[],
    units: number,
    out: Span,
    choices: readonly { name: string; planned: boolean; plan: PlanChoices }[],
    bytes?: number,
  ): Promise<void>;
}

/**
 * Few-row products of OPT-2.7B under every shape of cuda/linear-stream.cu that makes sense, over more weights than the
 * second-level cache holds, then whole decode layers. The winners belong into the preferences of stream-shape.ts.
 */
export async function benchStreams(bench: StreamBench): Promise<void> {
  for (const rows of [1, 2, 4, 8]) {
    await benchProduct(bench, rows, 'query, key, value', hidden, hidden, 3, 12);
    await benchProduct(bench, rows, 'output', hidden, hidden, 1, 24);
    await benchProduct(bench, rows, 'first', hidden, ffn, 1, 12);
    await benchProduct(bench, rows, 'second, dense', ffn, hidden, 1, 12);
    if (rows === 1) await benchProduct(bench, rows, 'head', hidden, vocabulary, 1, 6);
  }
  await benchActive(bench);
  await benchLayers(bench);
}

/** All of what choices differ in, since each takes over what the one before it left open. */
function plan(tuning: StreamTuning = {}, overlaps = true): PlanChoices {
  return { tuning, overlaps };
}

async function benchProduct(
  bench: StreamBench,
  rows: number,
  name: string,
  inputs: number,
  outputs: number,
  together: number,
  count: number,
): Promise<void> {
  const bytes = inputs * outputs * 2;
  const x = bench.floats(rows * inputs * 4);
  const outs = bench.room(together * rows * outputs * 4);
  const bias = bench.floats(outputs * 4);
  const ops = Array.from(
    { length: count * together },
    (_, index): LinearOp => ({
      kind: 'linear',
      rows,
      x,
      xStride: inputs,
      inputBegin: 0,
      inputEnd: inputs,
      outputs,
      matrix: { span: bench.halves(bytes), type: 'f16', layout: 'input-major', rowStride: outputs },
      // Products of one launch write apart, those of the next one over them.
      out: subspan(outs, (index % together) * rows * outputs * 4, rows * outputs * 4),
      outStride: outputs,
      outOffset: 0,
      continues: false,
      bias,
      residual: null,
    }),
  );
  const choices = [
    { name: 'as planned', planned: true, plan: plan() },
    { name: 'as planned, no overlap', planned: false, plan: plan({}, false) },
    { name: 'as planned, nothing asked for', planned: false, plan: plan({ prefetchedBytes: 0 }) },
    ...tunings(rows, outputs).map((tuning) => ({
      name: nameOf(tuning),
      planned: false,
      plan: plan({ ...tuning, prefetchedBytes: 0 }),
    })),
  ];
  const work = `${name}, ${rows} rows, ${inputs} x ${outputs}`;
  await bench.compare(work, ops, count, outs, choices, together * bytes);
  bench.clear();
}

/** Every tile, alone and several to a block of threads; rings shared by few warps or many. */
function tunings(rows: number, outputs: number): StreamTuning[] {
  const tiles = Object.keys(streamTiles) as StreamTile[];
  return tiles.flatMap((tile) => {
    const [lanes, perLane] = streamTiles[tile];
    const counts = [1, 2, 5].filter((count) => lanes * perLane * count <= 128 && outputs > hidden);
    return [1, ...counts.filter((count) => count > 1)].flatMap((count) =>
      [5, 10, 16, 20]
        .filter((mostWarps) => rows === 1 || mostWarps === 10 || mostWarps === 20)
        .flatMap((mostWarps) =>
          [1, 2, 3].flatMap((perMultiprocessor) =>
            (outputs > hidden ? [1] : [1, 3, 5]).map((ranks) => ({
              tile,
              tiles: count,
              ranks,
              mostWarps,
              perMultiprocessor,
            })),
          ),
        ),
    );
  });
}

function nameOf({ tile, tiles, ranks, mostWarps, perMultiprocessor }: StreamTuning): string {
  return `${tile} tiles ${tiles} ranks ${ranks} warps ${mostWarps} share ${perMultiprocessor}`;
}

/** The active set and the product over it, 3.4 % of 10240 neurons in each of 1, 2 and 4 rows. */
async function benchActive(bench: StreamBench): Promise<void> {
  const count = 8;
  for (const rows of [1, 2, 4]) {
    const values = new Float32Array(rows * ffn);
    let state = 9;
    for (let i = 0; i < values.length; i += 1) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      if (state / 2 ** 32 < 0.034) values[i] = 0.5;
    }
    const active = new Set(
      Array.from(values.keys())
        .filter((i) => values[i] !== 0)
        .map((i) => i % ffn),
    ).size;
    const x = bench.integers([...new Int32Array(values.buffer)]);
    const set = bench.room((ffn + 1) * 4);
    const out = bench.room(rows * hidden * 4);
    const ops = Array.from({ length: count }, (): Op[] => [
      { kind: 'compact', rows, width: ffn, x, active: set },
      {
        kind: 'active-inputs',
        rows,
        x,
        xStride: ffn,
        active: set,
        listBegin: 0,
        listEnd: -1,
        slots: null,
        outputs: hidden,
        matrix: {
          span: bench.halves(ffn * hidden * 2),
          type: 'f16',
          layout: 'input-major',
          rowStride: hidden,
        },
        out,
        continues: false,
        bias: null,
        residual: null,
      },
    ]).flat();
    await bench.compare(
      `second, ${active} active, ${rows} rows`,
      ops,
      count,
      out,
      [
        { name: 'overlap', planned: true, plan: plan() },
        { name: 'no overlap', planned: false, plan: plan({}, false) },
      ],
      active * hidden * 2,
    );
    bench.clear();
  }
}

/** What single products cannot show: how much of one hides behind the one in front. */
async function benchLayers(bench: StreamBench): Promise<void> {
  const layers = 8;
  const choices = [0, 10, 20, 40].flatMap((prefetched) =>
    [1, 2, 3].map((perMultiprocessor) => ({
      name: `ask for ${prefetched} MiB, share ${perMultiprocessor}`,
      planned: false,
      plan: plan({ prefetchedBytes: prefetched * mebibyte, perMultiprocessor }),
    })),
  );
  for (const dense of [false, true]) {
    const { ops, out } = decodeLayers(layers, 544, bench, dense);
    await bench.compare(`decode layer of 2.7B, ${dense ? 'dense' : 'sparse'} second`, ops, layers, out, [
      { name: 'as planned', planned: true, plan: plan() },
      { name: 'no overlap', planned: false, plan: plan({}, false) },
      ...choices,
    ]);
    bench.clear();
  }
}
