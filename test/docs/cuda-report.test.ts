import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { kernelSourceDigest, readKernelUnits } from '../../src/backend/cuda/kernel-sources.js';
import { mergeRuns, reportMarkdown, reportSchema, staleness } from '../cuda/report.js';

const folder = 'docs/reports';
const names = existsSync(folder)
  ? readdirSync(folder)
      .filter((name) => /^cuda-.*\.json$/.test(name))
      .map((name) => name.slice(0, -'.json'.length))
  : [];
const current = kernelSourceDigest(readKernelUnits('native'));

test(`committed GPU reports measured these kernels, and read as their JSON says: ${names.length}`, () => {
  for (const name of names) {
    const report = reportSchema.parse(JSON.parse(readFileSync(`${folder}/${name}.json`, 'utf8')));
    expect(staleness(report, current), name).toBeNull();
    expect(readFileSync(`${folder}/${name}.md`, 'utf8'), name).toBe(reportMarkdown(report));
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
