import { describe, expect, it } from 'vitest';
import { readKernelUnits } from '../../src/backend/cuda/kernel-sources.js';
import { KernelModules } from '../../src/backend/cuda/kernels.js';
import { launchConfigLayout } from '../../src/backend/cuda/launch-config.js';
import { Launcher } from '../../src/backend/cuda/launcher.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import type { Op, PlacedOp } from '../../src/backend/ops.js';
import type { Span } from '../../src/memory/buffers.js';
import { FakeDriver } from './cuda-fake-driver.js';
import { cudaFacts } from './cuda-support.js';

let nextAddress = 1 << 20;
function span(byteLength: number): Span {
  const buffer = { label: 'test', cause: 'workspace', address: nextAddress, byteLength } as const;
  nextAddress += Math.ceil(byteLength / 256) * 256;
  return { buffer, byteOffset: 0, byteLength };
}

const [neurons, outputs, places] = [384, 64, 100];
const placed = (ops: readonly Op[]): PlacedOp[] => ops.map((op, index) => ({ op, label: `op ${index}` }));
const add = (x = span(64)): Op => ({ kind: 'add', count: 16, a: x, b: x, out: x });

/** A guess, and what it is for. */
function guessed() {
  const [set, held] = [span(4 * (1 + neurons)), span(places * outputs * 2)];
  const index = { neurons, places, replaces: false, span: span(4 * neurons) };
  const matrix = {
    span: span(neurons * outputs * 2),
    type: 'f16',
    layout: 'input-major',
    rowStride: outputs,
  } as const;
  const x = span(4 * neurons);
  const guess: Op = { kind: 'guess-rows', set, index, held, matrix, guessed: span(4) };
  const use: Op[] = [
    { kind: 'compact', rows: 1, width: neurons, x, active: set },
    { kind: 'retain-rows', active: set, index, hits: span(4) },
    {
      kind: 'held-inputs',
      rows: 1,
      x,
      active: set,
      index,
      held,
      outputs,
      matrix,
      out: span(4 * outputs),
      bias: null,
      residual: null,
    },
  ];
  return { guess, use };
}

describe('guessed rows on a GPU', () => {
  it('come beside the launches up to the one that uses them, which waits', () => {
    const [first, second] = [guessed(), guessed()];
    const ops = [first.guess, add(), second.guess, add(), ...first.use, add(), ...second.use];
    const launches = planLaunches(placed(ops), cudaFacts);
    const shown = launches.map(({ kernel, beside, joins }) => [kernel, beside, joins]);
    expect(shown).toEqual([
      ['guess_rows', true, false],
      ['add', false, false],
      ['guess_rows', true, false],
      ['add', false, false],
      ['held_inputs_f16_r1_16B', false, true],
      ['add', false, false],
      // The first wait was for both.
      ['held_inputs_f16_r1_16B', false, false],
    ]);
    expect(launches[4]!.overlapsPrevious).toBe(false);
    expect(launches[6]!.overlapsPrevious).toBe(true);
    expect(launches[0]).toMatchObject({ grid: [65, 1, 1], threads: 64, sharedBytes: 0 });
    expect(launches[0]!.values).toMatchObject({ neurons, places, rowBytes: outputs * 2 });
  });

  it('part from the stream behind what is in front, and come back to it', () => {
    const fake = new FakeDriver();
    const calls: string[] = [];
    const names = new Map<bigint, string>();
    const nameOf = (handle: unknown) => names.get(BigInt(handle as bigint))!;
    const driver = {
      ...fake.library,
      cuStreamCreate: (...values: Parameters<typeof fake.library.cuStreamCreate>) => {
        const code = fake.library.cuStreamCreate(...values);
        names.set((values[0] as BigUint64Array)[0]!, 'side');
        return code;
      },
      cuEventRecord: (event: bigint | number, stream: bigint | number) => {
        if (!names.has(BigInt(event))) names.set(BigInt(event), `event ${names.size}`);
        calls.push(`${nameOf(stream)}: ${nameOf(event)}`);
        return 0;
      },
      cuStreamWaitEvent: (stream: bigint | number, event: bigint | number) => {
        calls.push(`${nameOf(stream)}: waits for ${nameOf(event)}`);
        return 0;
      },
      cuLaunchKernelEx: (...values: Parameters<typeof fake.library.cuLaunchKernelEx>) => {
        const { buffer, byteOffset } = values[0]!;
        const stream = new DataView(buffer, byteOffset).getBigUint64(launchConfigLayout.hStream, true);
        const code = fake.library.cuLaunchKernelEx(...values);
        calls.push(`${nameOf(stream)}: ${fake.launched.at(-1)}`);
        return code;
      },
    };
    names.set(77n, 'main');
    const modules = new KernelModules(driver, 232_448);
    const images = readKernelUnits().map(({ name }) => ({ name, image: new Uint8Array(4) }));
    modules.load({ images, sourceDigest: '', compiler: 'none', compiled: 0 });
    const launcher = new Launcher(driver, modules, 77n);
    const { guess, use } = guessed();
    launcher.run(planLaunches(placed([add(), guess, add(), ...use, add()]), cudaFacts));
    const forkAndUse = [
      'main: event 2',
      'side: waits for event 2',
      'side: guess_rows',
      'side: event 3',
      'main: add',
      'main: waits for event 3',
      'main: held_inputs_f16_r1_16B',
      'main: add',
    ];
    expect(calls).toEqual(['main: add', ...forkAndUse]);
    calls.length = 0;
    // Whatever nothing has waited for at the end is waited for there: a recording ends with all streams joined.
    launcher.run(planLaunches(placed([guess, add()]), cudaFacts));
    expect(calls).toEqual([...forkAndUse.slice(0, 5), 'main: waits for event 3']);
    launcher.close();
    expect(fake.live.stream).toBeUndefined();
    expect(fake.live.event).toBeUndefined();
  });
});
