import { expect, test } from 'vitest';
import { type CountedPass, countedKernels } from '../cuda/counters.js';

const pass: CountedPass = {
  arm: 'packets',
  skip: 40,
  launches: [
    { kernel: 'attention_cluster_f16', label: 'layers.1.attention' },
    { kernel: 'active_direct_f16', label: 'layers.1.second' },
  ],
};
const names = [
  'ID',
  'Kernel Name',
  'gpu__time_duration.sum',
  'dram__bytes_read.sum',
  'dram__throughput.avg.pct_of_peak_sustained_elapsed',
  'sm__warps_active.avg.pct_of_peak_sustained_active',
  'launch__registers_per_thread',
  'smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio',
  'smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio',
  'smsp__average_warps_issue_stalled_selected_per_issue_active.ratio',
  'smsp__average_warps_issue_stalled_wait_per_issue_active.ratio',
  'smsp__average_warps_issue_stalled_membar_per_issue_active.ratio',
];
const csv = (rows: readonly (readonly string[])[]): string =>
  ['==PROF== Connected to process 7', '==PROF== Profiling "attention": 0%....100% - 9 passes']
    .concat(
      [names, names.map(() => 'unit'), ...rows].map((row) =>
        row.map((cell) => `"${cell.replaceAll('"', '""')}"`).join(','),
      ),
    )
    .join('\n');
const rows = [
  [
    '0',
    'attention_cluster_f16(AttentionParams)',
    '8,000',
    '4,000,000',
    '12.5',
    '25',
    '64',
    '1',
    '9',
    '1',
    '2',
    '0.5',
  ],
  ['1', 'active_direct_f16', '10000', '20000000', '50', '75', '40', '3', '1', '1', '2', '0.5'],
];

test('what the profiler wrote is read by launch, with the three reasons that most warps wait for', () => {
  const [attention, second] = countedKernels(pass, csv(rows));
  expect(attention).toEqual({
    arm: 'packets',
    label: 'layers.1.attention',
    kernel: 'attention_cluster_f16',
    microseconds: 8,
    dramGigabytesPerSecond: 500,
    dramShare: 12.5,
    occupancy: 25,
    registers: 64,
    stalls: [
      { reason: 'long_scoreboard', warps: 9 },
      { reason: 'wait', warps: 2 },
      { reason: 'barrier', warps: 1 },
    ],
  });
  expect(second!.stalls.map(({ reason }) => reason)).toEqual(['barrier', 'wait', 'long_scoreboard']);
});

test('counters of other launches than those of the pass are refused', () => {
  expect(() => countedKernels(pass, csv(rows.slice(0, 1)))).toThrow(
    'Cannot read counters of 2 launches: the profiler has 1',
  );
  expect(() => countedKernels(pass, csv([...rows].reverse()))).toThrow(
    /^Cannot read counters of launch 0: it is "active_direct_f16", want "attention_cluster_f16"/,
  );
});
