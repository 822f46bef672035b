import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { uniform } from '../../src/base/philox.js';
import { buildArchive } from '../../src/lab/archive.js';
import { auditArchive } from '../../src/lab/audit.js';
import { evaluateRun } from '../../src/lab/evaluation.js';
import { parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import type { RunRecord } from '../../src/lab/record-format.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { resumeRun, runProtocol } from '../../src/lab/runner.js';
import { packedBytes } from './support/archive-sample.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sampleProtocol, yamlBytes } from './support/sample-protocol.js';
import { chained, sampleEnd, wholeRun } from './support/sample-run.js';

const sequential = { looks: [10, 14, 20], spending: 'obrien-fleming' as const };
const schedule = {
  seed: 7,
  blocks: 20,
  order: 'balanced',
  warmUps: 0,
  sequential,
} satisfies Protocol['schedule'];
const faster = sampleProtocol().gates[2]!;
const protocol = sampleProtocol({ schedule, gates: [faster] });

/** A run of which `blocks` blocks were run; "packets" takes `factor` times as long, with 2 % of seeded noise. */
function runOf(factor: number, blocks: number, end: RunRecord | null) {
  const { manifest, records } = wholeRun(protocol, ({ arm }, index) =>
    BigInt(Math.round(1e9 * (arm === 'packets' ? factor : 1) * (1 + 0.02 * uniform(3, index, 0)))),
  );
  const trials = records.filter((record) => record.kind === 'trial').slice(0, 2 * blocks);
  return evaluateRun(protocol, manifest, chained(manifest, [...trials, ...(end === null ? [] : [end])]));
}

describe('a sequential rule', () => {
  test('ends a run at the first look that decides, and says so', () => {
    const found = runOf(0.8, 10, sampleEnd({ stoppedAfterBlocks: 10 }));
    expect(found).toMatchObject({ verdict: 'pass', status: 'completed', violations: [], exitCode: 0 });
    const { effect, reason } = found.gates[0]!;
    expect(effect).toMatchObject({ pairs: 10, leftOut: 0, bootstrap: null, interval: { confidence: 0.95 } });
    expect(effect!.warnings.at(-1)!.text).toContain('look 1 of 3');
    expect(reason).toContain('95 % interval');
  });

  test('has wider intervals at early looks than a fixed number of pairs', () => {
    const { sequential: _, ...plainSchedule } = schedule;
    const fixed = sampleProtocol({ schedule: { ...plainSchedule, blocks: 10 }, gates: [faster] });
    const { manifest, records } = wholeRun(fixed, ({ arm }, index) =>
      BigInt(Math.round(1e9 * (arm === 'packets' ? 0.8 : 1) * (1 + 0.02 * uniform(3, index, 0)))),
    );
    const plain = evaluateRun(fixed, manifest, records).gates[0]!.effect!;
    const early = runOf(0.8, 10, sampleEnd({ stoppedAfterBlocks: 10 })).gates[0]!.effect!;
    expect(early.ratio).toBe(plain.ratio);
    expect(early.interval!.high).toBeGreaterThan(plain.interval!.high);
    expect(early.interval!.low).toBeLessThan(plain.interval!.low);
  });

  test('goes on where nothing is decided, up to the last look', () => {
    const found = runOf(1, 20, sampleEnd());
    expect(found).toMatchObject({ verdict: 'inconclusive', violations: [] });
    expect(found.gates[0]!.effect!.warnings.at(-1)!.text).toContain('look 3 of 3');
  });

  test('is broken by stopping where it does not, and by going on where it ends the run', () => {
    expect(runOf(1, 10, sampleEnd({ stoppedAfterBlocks: 10 })).violations).toEqual([
      'the run says that its rule ended it after 10 blocks, and the rule does not',
    ]);
    expect(runOf(0.8, 12, sampleEnd({ stoppedAfterBlocks: 12 })).violations).not.toEqual([]);
    expect(runOf(0.8, 20, sampleEnd()).violations).toEqual([
      'the rule ends the run after 10 blocks, and it went on',
    ]);
    expect(runOf(0.8, 20, sampleEnd()).exitCode).toBe(6);
    expect(runOf(0.8, 10, sampleEnd()).violations).not.toEqual([]);
    expect(runOf(0.8, 14, sampleEnd({ stoppedAfterBlocks: 10 })).violations).not.toEqual([]);
  });

  test('decides nothing in a run that was killed between looks', () => {
    for (const blocks of [9, 10, 12]) {
      expect(runOf(0.8, blocks, null)).toMatchObject({
        verdict: 'inconclusive',
        status: 'killed',
        violations: [],
      });
    }
  });

  test.each([
    [{ looks: [10, 20, 20] }, 'do not rise'],
    [{ looks: [10, 18] }, 'want all 20'],
    [{ looks: [8, 20] }, 'at least 10'],
    [{ looks: [11, 20] }, 'not balanced'],
  ])('%o is refused', (changes, text) => {
    const wrong = { ...schedule, sequential: { ...sequential, ...changes } };
    expect(() => parseProtocol(yamlBytes(sampleProtocol({ schedule: wrong })), 'p')).toThrow(text);
  });

  test('without a gate that it could decide is refused', () => {
    const gates = sampleProtocol().gates.slice(0, 2);
    expect(() => parseProtocol(yamlBytes(sampleProtocol({ schedule, gates })), 'p')).toThrow(
      'no gate on a ratio',
    );
  });
});

describe('a sequential run', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await openBench();
  });
  afterAll(() => bench.close());

  /** The bound is so far away that the first look decides, on any machine. */
  const sure = (): Protocol =>
    liveProtocol(bench, {
      schedule,
      workload: {
        kind: 'known',
        items: [{ prompts: [{ promptIds: [2, 100] }] }],
        newTokens: 1,
        includeContent: false,
      },
      gates: [
        { ...faster, bound: '900000.0' } as never,
        { name: 'all', family: 'resources', check: 'complete' },
      ],
    });

  test('stops at the look, resumes to the same end when it was killed there, and passes its audit', async () => {
    const protocolPath = await bench.freeze(sure());
    const runPath = join(bench.folder, 'sequential');
    const { leaseFolder } = bench;
    const controller = new AbortController();
    let trials = 0;
    const onRecord = () => {
      // The last trial of the first look is on the disk, and nothing says yet that the run is over
      if (++trials === 20) controller.abort();
    };
    await runProtocol({ protocolPath, runPath, leaseFolder }, { signal: controller.signal, onRecord });
    const resumed = await resumeRun({ runPath, leaseFolder });
    expect(resumed).toMatchObject({ verdict: 'pass', status: 'completed', violations: [] });
    expect(resumed.gates[1]!.reason).toBe('all 10 blocks were completed');
    const { records } = await readRunFolder(runPath);
    expect(records.filter(({ kind }) => kind === 'trial')).toHaveLength(20);
    expect(records.at(-1)).toMatchObject({ kind: 'ended', stoppedAfterBlocks: 10 });
    const { members } = await buildArchive({
      run: runPath,
      noise: null,
      attempts: [],
      attachments: [],
      privateKey: null,
    });
    const { audit } = await auditArchive(await packedBytes(members), { name: 's.zip' });
    expect(audit).toMatchObject({ holds: true, verdict: 'pass' });
  });
});
