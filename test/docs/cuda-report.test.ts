import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { brotliDecompressSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { kernelSourceDigest, readKernelUnits } from '../../src/backend/cuda/kernel-sources.js';
import { findResults } from '../cuda/find-runs.js';
import { mergeRuns, reportMarkdown, reportSchema, staleness } from '../cuda/report.js';

const folder = 'docs/reports';
const names = existsSync(folder)
  ? readdirSync(folder)
      .filter((name) => /^cuda-.*\.json\.br$/.test(name))
      .map((name) => name.slice(0, -'.json.br'.length))
  : [];
const current = kernelSourceDigest(readKernelUnits('native'));

test(`committed GPU reports measured these kernels, and read as their JSON says: ${names.length}`, () => {
  for (const name of names) {
    const report = reportSchema.parse(
      JSON.parse(brotliDecompressSync(readFileSync(`${folder}/${name}.json.br`)).toString()),
    );
    expect(readFileSync(`${folder}/${name}.md`, 'utf8'), name).toBe(reportMarkdown(report));
    expect(staleness(report, current), name).toBeNull();
  }
});

const run = {
  parts: ['contract'],
  driver: '13.0',
  kernelSources: current,
  device: { name: 'a GPU', architecture: 90, totalBytes: 1 << 30, multiprocessors: 132 },
  kernels: { kernels: 'cuda sm_90', reason: 'a test' },
  date: '2026-11-30T12:00:00.000Z',
  counts: { passed: 3, failures: [] },
  parity: [{ model: 'm', compared: 8, digest: 'a'.repeat(64) }],
  times: [],
  shape: null,
};

test('a report is one of its runs together', () => {
  const failures = [{ name: 'parity | m', message: 'differs' }];
  const report = mergeRuns([run, { ...run, counts: { passed: 4, failures }, parity: [] }], {
    memcheck: '0 errors',
  });
  expect(report.counts).toEqual({ passed: 7, failures });
  expect(reportSchema.parse(report)).toEqual(report);
  const text = reportMarkdown(report);
  expect(text).toContain('| checks | 7 passed, 1 failed |');
  expect(text).toContain('| failed | parity \\| m: differs |');
  expect(text).toContain('| compute-sanitizer memcheck | 0 errors |');
});

test('runs of other kernels, devices or drivers are not mixed', () => {
  for (const other of [
    { ...run, kernelSources: 'b'.repeat(64) },
    { ...run, driver: '12.8' },
    { ...run, device: { ...run.device, name: 'another' } },
  ])
    expect(() => mergeRuns([run, other], {})).toThrow(/^Cannot make one report of runs that differ in/);
});

test('a report of other kernel sources is stale', () => {
  const report = mergeRuns([run], {});
  expect(staleness(report, current)).toBeNull();
  expect(staleness(report, 'c'.repeat(64))).toMatch(/^it measured kernel sources .* make the report anew$/);
});

const arm = {
  shape: '13b',
  activeShare: 0.034,
  arm: 'packets 60 % of weights',
  regime: 'B',
  plannedBytes: 15_000_000_000,
  prefillMs: 900,
  msPerToken: 130.25,
  deviceMsPerToken: null,
  parts: { attention: 1, projections: 5.5, rows: 2, rest: 0.25 },
  partsBy: 'submissions',
  rowsPerToken: 27_000,
  bytesPerToken: 7_000_000_000,
  plannedBytesPerToken: 7_000_000_000,
  firstTokenMs: 900.4,
  firstEpisodeMs: 1500,
  secondEpisodeMs: 1400,
  overlap: { computeMs: 10, copyMs: 100, regionOverlap: 0.0625, exposedWaitMs: 93.75, dispatchGapMs: 26.5 },
  digests: ['a', 'b'],
} as const;
const rival = { rival: 'transformers', msPerToken: 17.4, prefillMs: 18, peakDeviceBytes: 5_500_000_000 };
const shape = { arms: [arm], rivals: [rival], copyGigabytesPerSecond: 54.9 };

test('shapes come with bytes by the plan and with parts; digests of an arm become one', () => {
  const report = mergeRuns([{ ...run, shape }], {});
  expect(reportSchema.parse(JSON.parse(JSON.stringify(report)))).toEqual(report);
  expect(report.shape!.arms[0]).not.toHaveProperty('digests');
  expect(report.shape!.arms[0]!.logits).toEqual({
    tokens: 2,
    sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
  });
  const text = reportMarkdown(report);
  expect(text).toContain(
    '| 13b | 3.4 | packets 60 % of weights | B | 15000000000 | 900.0 | 130.250 | - | 27000 | 7000000000 | 7000000000 |',
  );
  expect(text).toContain(
    '| 13b | 3.4 | packets 60 % of weights | 1.000 | 5.500 | 2.000 | 0.250 | 8.750 | - | submissions |',
  );
  expect(text).toContain('| 13b | 3.4 | packets 60 % of weights | - | 900 | 1500 | 1400 | - | - |');
  expect(text).toContain('| 13b | 3.4 | packets 60 % of weights | 10.00 | 100.00 | 6.3 | 93.75 | 26.50 |');
  expect(text).toContain('| 2.7b | | transformers, at most 5500000000 B on the device |');
});

test('results are sorted by what they are; old ones and such of other kernels are named and left out', () => {
  const later = { ...run, date: '2026-11-30T13:00:00.000Z', counts: { passed: 4, failures: [] } };
  const pass = {
    arm: 'packets',
    skip: 3,
    launches: [{ kernel: 'attention_f16', label: 'layers.0.attention' }],
  };
  const files = [
    { path: 'a/contract.json', text: JSON.stringify(run) },
    { path: 'b/contract.json', text: JSON.stringify(later) },
    {
      path: 'b/old.json',
      text: JSON.stringify({ ...run, parts: ['faults'], kernelSources: 'c'.repeat(64) }),
    },
    { path: 'b/other.json', text: '{}' },
    { path: 'b/shape.json', text: JSON.stringify({ ...run, parts: ['shape'], shape }) },
    { path: 'b/packets.pass.json', text: JSON.stringify(pass) },
    {
      path: 'b/packets.counters.csv',
      text: '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","attention_f16","8000"',
    },
    {
      path: 'b/memcheck.txt',
      text: 'sanitize: 124 kernels in 121 cases, each launched\n========= ERROR SUMMARY: 0 errors',
    },
    { path: 'b/racecheck.txt', text: 'sanitize: 124 kernels in 121 cases, each launched\n' },
  ];
  const { runs, counters, sanitizer, leftOut } = findResults(files, current);
  expect(runs.map(({ parts, counts }) => [...parts, counts.passed])).toEqual([
    ['contract', 4],
    ['shape', 3],
  ]);
  expect(counters).toMatchObject([{ arm: 'packets', label: 'layers.0.attention', microseconds: 8 }]);
  expect(sanitizer).toEqual({
    memcheck: '0 errors: 124 kernels in 121 cases',
    racecheck: 'not run to its end',
  });
  expect(leftOut).toEqual([
    'a/contract.json: "b/contract.json" did the same later',
    `b/old.json: it measured kernel sources ${'c'.repeat(16)}`,
    'b/other.json: it is no run',
  ]);
  const report = mergeRuns(runs, sanitizer, [
    {
      ...counters[0]!,
      dramGigabytesPerSecond: 500,
      dramShare: 12,
      occupancy: 25,
      registers: 64,
      stalls: [{ reason: 'wait', warps: 2 }],
    },
  ]);
  expect(reportMarkdown(report)).toContain(
    '| packets | layers.0.attention | attention_f16 | 8.00 | 500 | 12 | 25 | 64 | wait 2.0 |',
  );
});
