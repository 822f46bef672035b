import type { DeviceFacts } from '../../src/backend/cuda/device.js';
import { loadDriver } from '../../src/backend/cuda/driver.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { planLaunches } from '../../src/backend/cuda/plan-launches.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import { cudaFacts } from '../backend/cuda-support.js';
import { Arm, type ArmPlan } from './shape-arm.js';
import { usualShare } from './shape-arms.js';
import { writeShape } from './shape-model.js';

/** A decode pass for a profiler: which launches of the process it is, and what each of them is for. */
export interface CountedPass {
  readonly arm: string;
  /** Kernels launched before it. */
  readonly skip: number;
  readonly launches: readonly { readonly kernel: string; readonly label: string }[];
}

const arms: readonly ArmPlan[] = [
  { name: 'resident', policy: 'resident', budget: Infinity },
  { name: 'resident-sparse', policy: 'resident-sparse', budget: Infinity },
  { name: 'packets', policy: 'phase', budget: 'regime C' },
];

/**
 * Runs a prompt and a few decode passes of two layers of the 2.7B shape, launched kernel by kernel as every run launches
 * the same ones, so that a profiler can be told to look at those of the last pass alone.
 */
export async function countedPass(armName: string, promptTokens = 512): Promise<CountedPass> {
  const plan = arms.find(({ name }) => name === armName);
  if (plan === undefined) {
    throw new RangeError(
      `Cannot count launches of arm "${armName}": want one of ${arms.map(({ name }) => name).join(', ')}`,
    );
  }
  const model = writeShape('2.7b-two-layers');
  model.setActiveShare(usualShare);
  try {
    const launched = watchLaunches();
    const gpu = await openCuda({ graphs: false });
    const submit = gpu.submit;
    let before = 0;
    let after = 0;
    let last: readonly PlacedOp[] = [];
    gpu.submit = (ops) => {
      const first = launched.length;
      const running = submit.call(gpu, ops);
      // Not what may follow a pass, such as a choice from its logits.
      if (ops.some(({ op }) => op.kind === 'attention')) {
        [before, after, last] = [first, launched.length, ops];
      }
      return running;
    };
    const arm = await Arm.open(plan, gpu, model.prepared, promptTokens);
    try {
      await arm.run(4);
    } finally {
      await arm.close();
    }
    const kernels = launched.slice(before, after);
    const labels = labelsOf(last, kernels, gpu.device);
    const launches = kernels.map((kernel, index) => ({ kernel, label: labels?.[index] ?? '' }));
    return { arm: plan.name, skip: before, launches };
  } finally {
    model.remove();
  }
}

/** Names of all kernels that are launched from here on, in their order. */
function watchLaunches(): readonly string[] {
  const driver = loadDriver();
  const { cuModuleGetFunction: find, cuLaunchKernelEx: launch } = driver;
  const names = new Map<unknown, string>();
  const launched: string[] = [];
  Object.assign(driver, {
    cuModuleGetFunction: (room: BigUint64Array, module: bigint, name: string) => {
      const status = find(room, module, name);
      names.set(room[0], name);
      return status;
    },
    cuLaunchKernelEx: (...values: Parameters<typeof launch>) => {
      launched.push(names.get(values[1]) ?? 'unknown');
      return launch(...values);
    },
  });
  return launched;
}

/** What the launches of a submission are for; null where planning for a bare device comes to other ones. */
function labelsOf(
  ops: readonly PlacedOp[],
  kernels: readonly string[],
  { architecture, multiprocessors, sharedBytes }: DeviceFacts,
): readonly string[] | null {
  const planned = planLaunches(ops, { ...cudaFacts, architecture, multiprocessors, sharedBytes });
  const same =
    planned.length === kernels.length && planned.every(({ kernel }, index) => kernel === kernels[index]);
  return same ? planned.map(({ opIndex }) => ops[opIndex]!.label) : null;
}

/** One kernel of a decode pass, as counters of the device saw it alone, with cold caches. */
export interface CountedKernel {
  readonly arm: string;
  readonly label: string;
  readonly kernel: string;
  readonly microseconds: number;
  readonly dramGigabytesPerSecond: number;
  /** Of what the memory can give at most, in per cent. */
  readonly dramShare: number;
  /** Warps that were there, of those that a multiprocessor holds, in per cent. */
  readonly occupancy: number;
  readonly registers: number;
  /** Warps that waited, on average, for each instruction that was issued: the three largest reasons. */
  readonly stalls: readonly { readonly reason: string; readonly warps: number }[];
}

const stallPattern = /^smsp__average_warps_issue_stalled_(.+)_per_issue_active\.ratio$/;

/**
 * Reads what `ncu --csv --page raw --print-units base` wrote of the launches of a pass, in their order.
 * Throws `RangeError` where it saw others.
 */
export function countedKernels(pass: CountedPass, text: string): CountedKernel[] {
  const [names = [], , ...rows] = csvRows(text.slice(Math.max(0, text.indexOf('"ID"'))));
  const found = rows.filter(({ length }) => length === names.length);
  if (found.length !== pass.launches.length) {
    throw new RangeError(
      `Cannot read counters of ${pass.launches.length} launches: the profiler has ${found.length}`,
    );
  }
  return pass.launches.map(({ kernel, label }, index) => {
    const row = found[index]!;
    const textOf = (name: string): string => row[names.indexOf(name)] ?? '';
    const value = (name: string): number => Number(textOf(name).replaceAll(',', ''));
    const seen = textOf('Kernel Name');
    if (!seen.startsWith(kernel)) {
      throw new RangeError(`Cannot read counters of launch ${index}: it is "${seen}", want "${kernel}"`);
    }
    const nanoseconds = value('gpu__time_duration.sum');
    const stalls = names.flatMap((name) => {
      const reason = stallPattern.exec(name)?.[1];
      return reason === undefined || reason === 'selected' ? [] : [{ reason, warps: value(name) }];
    });
    return {
      arm: pass.arm,
      label,
      kernel,
      microseconds: nanoseconds / 1000,
      dramGigabytesPerSecond: value('dram__bytes_read.sum') / nanoseconds,
      dramShare: value('dram__throughput.avg.pct_of_peak_sustained_elapsed'),
      occupancy: value('sm__warps_active.avg.pct_of_peak_sustained_active'),
      registers: value('launch__registers_per_thread'),
      stalls: stalls.sort((a, b) => b.warps - a.warps).slice(0, 3),
    };
  });
}

/** Rows of quoted cells; quotes inside are doubled. */
function csvRows(text: string): string[][] {
  return text
    .split(/\r?\n/)
    .filter((line) => line.startsWith('"'))
    .map((line) => [...line.matchAll(/"((?:[^"]|"")*)"/g)].map(([, cell]) => cell!.replaceAll('""', '"')));
}
