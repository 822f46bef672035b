import type { JudgedPart } from '../lab-receipt.js';
import type { Environment, MachineState, TrialRecord } from '../record-format.js';
import { ascending } from '../statistics/percentile.js';
import type { Block, Cell } from './document.js';
import { bytesText } from './figures.js';

/** What the machine was, and what it did while the trials ran. */
export function environmentSection({ part, selection }: JudgedPart): Block[] {
  const { environment, program } = part.manifest;
  const trial = selection.blocks
    .find((block) => block !== null)
    ?.values()
    .next().value;
  return [
    { kind: 'heading', level: 2, text: 'Environment' },
    {
      kind: 'facts',
      facts: [
        ['Program', program.name],
        ['Machine', `${environment.platform} ${environment.architecture}, ${environment.processor}`],
        ['Processors', String(environment.processors)],
        ['Memory', bytesText(BigInt(environment.memoryBytes))],
        ...gpuFacts(environment.gpu),
        ['Node.js', environment.node],
        ['Lease', environment.lease.join(', ')],
        ['Kernels of the first trial', trial?.arm.kernels ?? 'not known'],
        ...machineFacts(part.records.filter((record) => record.kind === 'trial')),
        ['Began', part.manifest.startedAt],
        ['Ended', selection.ended?.at ?? 'not recorded'],
      ],
    },
  ];
}

function gpuFacts(gpu: Environment['gpu']): [string, Cell][] {
  if (gpu === undefined) return [];
  return [['GPU', `${gpu.name}, ${bytesText(BigInt(gpu.memoryBytes))}, driver for CUDA ${gpu.driver}`]];
}

/** Least and most of every reading around the trials; what nobody told is left out. */
function machineFacts(trials: readonly TrialRecord[]): [string, Cell][] {
  const states = trials.flatMap(({ machine, borrowed }) =>
    borrowed === undefined ? [machine.before, machine.after] : [],
  );
  const range = (
    label: string,
    value: (state: MachineState) => string | null | undefined,
    text: (value: bigint) => string,
  ): [string, Cell][] => {
    const known = states.flatMap((state) => {
      const found = value(state);
      return found === null || found === undefined ? [] : [BigInt(found)];
    });
    if (known.length === 0) return [];
    const sorted = ascending(known);
    const [least, most] = [sorted[0]!, sorted.at(-1)!];
    return [[label, least === most ? text(least) : `${text(least)} to ${text(most)}`]];
  };
  const thousandths = (value: bigint): string => (Number(value) / 1000).toFixed(2);
  const watts = (value: bigint): string => `${(Number(value) / 1000).toFixed(0)} W`;
  const reasons = new Set(states.flatMap(({ throttleReasons }) => throttleReasons ?? []));
  const told = states.some(({ throttleReasons }) => throttleReasons !== null);
  const others = new Set(
    states.flatMap(({ foreignProcesses }) => foreignProcesses?.map(({ pid }) => pid) ?? []),
  );
  const asked = states.some(
    ({ foreignProcesses }) => foreignProcesses !== null && foreignProcesses !== undefined,
  );
  return [
    ...range('Load average', (state) => state.loadAverageThousandths, thousandths),
    ...range('Free memory', (state) => state.freeMemoryBytes, bytesText),
    ...range(
      'GPU clock',
      (state) => state.clocksMegahertz,
      (value) => `${value} MHz`,
    ),
    ...range(
      'GPU memory clock',
      (state) => state.memoryClockMegahertz,
      (value) => `${value} MHz`,
    ),
    ...range(
      'GPU temperature',
      (state) => state.temperatureCelsius,
      (value) => `${value} °C`,
    ),
    ...range('GPU power', (state) => state.powerMilliwatts, watts),
    ...range('GPU power cap', (state) => state.powerCapMilliwatts, watts),
    ...(told
      ? [['GPU clocks held back by', [...reasons].sort().join(', ') || 'nothing'] as [string, Cell]]
      : []),
    ...(asked
      ? [['Others on the GPU', others.size === 0 ? 'none' : `${others.size} processes`] as [string, Cell]]
      : []),
  ];
}
