import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { draft, finish, start, temporaryFolder } from '../cli/harness.js';

let folder: string;
beforeAll(() => {
  folder = temporaryFolder();
  mkdirSync(join(folder, 'tmp'));
});
const at = (name: string): string => join(folder, name);
// Leases lie in the temporary folder, so that other runs on this machine are not in the way
const lab = (...args: string[]) => start(['lab', ...args], { environment: { TMPDIR: at('tmp') } });
const done = (...args: string[]) => finish(lab(...args));

interface EvaluationJson {
  readonly verdict: string;
  readonly status: string;
  readonly exitCode: number;
  readonly deviations: readonly string[];
  readonly gates: readonly { readonly name: string; readonly verdict: string }[];
}

/** The template without its gate on time, on a small schedule. */
function shorten(path: string, blocks: number): void {
  const text = readFileSync(path, 'utf8');
  const gate = /^ {2}- name: not slower\n(?: {4}.*\n)+/m;
  expect(text).toMatch(gate);
  writeFileSync(path, text.replace(gate, '').replace('blocks: 10', `blocks: ${blocks}`));
}

describe('waybill lab', () => {
  test('init, freeze, run and show go from a question to a verdict', async () => {
    const init = await done('init', at('claim.yaml'), '--model', draft, '--threads', '1', '--quiet');
    expect(init).toMatchObject({ code: 0 });
    expect((await done('init', at('claim.yaml'), '--model', draft)).code).toBe(2);
    shorten(at('claim.yaml'), 2);
    const unfrozen = await done('run', at('claim.yaml'), '--out', at('none'));
    expect([unfrozen.code, unfrozen.stderr]).toEqual([2, expect.stringContaining('not-frozen')]);
    const frozen = await done('freeze', at('claim.yaml'), '--json');
    const { digest, file } = JSON.parse(frozen.stdout) as { digest: string; file: string };
    expect(readFileSync(file, 'utf8')).toContain(`digest: ${digest}`);

    const run = await done('run', file, '--out', at('run'), '--json');
    const evaluation = JSON.parse(run.stdout) as EvaluationJson;
    expect(run.code, run.stdout).toBe(0);
    expect(evaluation).toMatchObject({ verdict: 'pass', exitCode: 0, status: 'completed' });
    expect(evaluation.gates.map(({ verdict }) => verdict)).toEqual(['pass', 'pass', 'pass', 'pass']);
    expect(run.stderr).toMatch(/warm-up: trial 1 of 6\nblock 1: trial 3 of 6, \d+ s left\n/);

    const show = await done('show', at('run'));
    expect(show).toMatchObject({ code: 0 });
    expect(show.stdout).toContain(digest);
    expect(show.stdout).toMatch(/^pass +same bits/m);
    expect(show.stdout).toContain('not claimed: Nothing is said of other models');

    const record = at('run/records/000003.json');
    writeFileSync(record, readFileSync(record, 'utf8').replace('"completed"', '"failed"'));
    const touched = await done('show', at('run'));
    expect([touched.code, touched.stderr]).toEqual([6, expect.stringContaining('000004.json')]);
  });

  test('freeze names line and column, and shows what a superseding protocol changes', async () => {
    const text = readFileSync(at('claim.yaml'), 'utf8');
    writeFileSync(at('wrong.yaml'), text.replace('schedule:\n', 'schedule:\n  sed: 1\n'));
    const wrong = await done('freeze', at('wrong.yaml'));
    const line = text.split('\n').indexOf('schedule:') + 2;
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining(`line ${line}, column 3`)]);
    writeFileSync(at('next.yaml'), text.replace('blocks: 2', 'blocks: 4'));
    const earlier = at('claim.frozen.yaml');
    const next = await done('freeze', at('next.yaml'), '--supersedes', earlier, '--reason', 'more pairs');
    expect(next).toMatchObject({ code: 0 });
    expect(next.stdout).toContain('schedule.blocks: 2 -> 4');
    expect((await done('freeze', at('next.yaml'), '--supersedes', earlier)).code).toBe(2);
  });

  test('run ends with 130 at SIGINT, and resume finishes it', async () => {
    const child = lab('run', at('next.frozen.yaml'), '--out', at('broken'), '--json');
    child.stderr!.on('data', (bytes: Buffer) => {
      if (bytes.toString().includes('block 1')) child.kill('SIGINT');
    });
    const broken = await finish(child);
    expect([broken.code, JSON.parse(broken.stdout)]).toEqual([
      130,
      expect.objectContaining({ verdict: 'inconclusive', status: 'interrupted' }),
    ]);
    expect((await done('show', at('broken'))).code).toBe(5);
    const resumed = await done('resume', at('broken'), '--json');
    expect(resumed.code).toBe(0);
    expect((JSON.parse(resumed.stdout) as EvaluationJson).deviations.join()).toContain('resumed');
    expect((await done('resume', at('broken'))).code).toBe(2);
  });

  test('run --aa gives no verdict on gates', async () => {
    const run = await done('run', at('claim.frozen.yaml'), '--out', at('aa'), '--aa', '--json');
    const { gates } = JSON.parse(run.stdout) as EvaluationJson;
    expect(gates).toEqual([]);
    expect(run.code).toBe(4); // two pairs have no noise floor
  });
});
