import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { finish, start, temporaryFolder } from '../cli/harness.js';
import { packetsWin, writeSampleRun } from './support/archive-sample.js';

let folder: string;
const at = (name: string): string => join(folder, name);
const lab = (...args: string[]) => finish(start(['lab', ...args]));

beforeAll(async () => {
  folder = temporaryFolder();
  mkdirSync(at('runs'));
  await writeSampleRun(at('runs/good'));
  await writeSampleRun(at('runs/failed'), {
    trials: 5,
    end: null,
    startedAt: '2026-01-01T05:00:00.000+00:00',
  });
  await writeSampleRun(at('runs/slow'), {
    trial: (slot, index) => ({
      ...packetsWin({ ...slot, arm: slot.arm === 'packets' ? 'stream' : 'packets' }, index),
      slot,
      arm: packetsWin(slot, index).arm,
    }),
  });
  await finish(start(['keygen', at('key')]));
});

describe('waybill lab archive, audit, report, diff, restore', () => {
  test('go from a run to an archive that a stranger checks', async () => {
    const archived = await lab(
      'archive',
      at('runs/good'),
      '-o',
      at('good.zip'),
      '--attempt',
      at('runs/failed'),
      '--sign',
      at('key.pem'),
      '--json',
    );
    expect(archived.code, archived.stderr).toBe(0);
    const { sha256, verdict } = JSON.parse(archived.stdout) as { sha256: string; verdict: string };
    expect(verdict).toBe('pass');
    expect(readFileSync(at('good.zip.sha256'), 'utf8')).toBe(`${sha256}  good.zip\n`);

    const audits = await Promise.all(
      [0, 1].map(() => lab('audit', at('good.zip'), '--key', at('key.pub.pem'), '--json')),
    );
    expect(audits[0]!.code).toBe(0);
    expect(audits[0]!.stdout).toBe(audits[1]!.stdout);
    expect(JSON.parse(audits[0]!.stdout)).toMatchObject({ holds: true, verdict: 'pass', broken: null });

    const report = await lab('report', at('good.zip'), '-o', at('report.html'));
    expect(report.code, report.stderr).toBe(0);
    expect(readFileSync(at('report.html'), 'utf8')).toContain('3 of 3 gates pass');
    expect((await lab('report', at('runs/good'), '-o', at('report.md'))).code).toBe(0);
    expect(readFileSync(at('report.md'), 'utf8')).toContain('vouches for nothing');
    expect((await lab('report', at('good.zip'), '-o', at('report.pdf'))).code).toBe(2);
  });

  test('give the exit codes of what they find', async () => {
    expect((await lab('archive', at('runs/slow'), '-o', at('slow.zip'))).code).toBe(0);
    const before = readFileSync(at('slow.zip'));
    const again = await lab('archive', at('runs/good'), '-o', at('slow.zip'));
    expect([again.code, again.stderr]).toEqual([2, expect.stringContaining('[file-exists]')]);
    expect(readFileSync(at('slow.zip'))).toEqual(before);
    const slow = await lab('audit', at('slow.zip'));
    expect([slow.code, slow.stdout]).toEqual([1, expect.stringContaining('verdict fail')]);
    const diff = await lab('diff', at('good.zip'), at('slow.zip'));
    expect([diff.code, diff.stdout]).toEqual([1, expect.stringContaining('no ratio of them is an effect')]);
    expect((await lab('diff', at('good.zip'), at('good.zip'))).code).toBe(0);

    const bytes = readFileSync(at('good.zip'));
    bytes[bytes.length >> 1]! ^= 1;
    writeFileSync(at('touched.zip'), bytes);
    const refused = [
      ['audit', at('touched.zip')],
      ['report', at('touched.zip'), '-o', at('none.html')],
      ['diff', at('good.zip'), at('touched.zip')],
      ['restore', at('touched.zip'), at('none')],
      ['archive', at('runs/good'), '--attempt', at('touched.zip'), '-o', at('none.zip')],
    ];
    const codes = await Promise.all(refused.map(async (args) => (await lab(...args)).code));
    expect(codes).toEqual(refused.map(() => 6));
    expect((await lab('audit', at('absent.zip'))).code).toBe(2);
    expect((await lab('audit', at('good.zip'), '--model', 'x')).code).toBe(2);
    const idle = await lab('audit', at('good.zip'), '--budget', '1GB');
    expect([idle.code, idle.stderr]).toEqual([2, expect.stringContaining('--budget without --reexecute')]);
    expect((await lab('audit', at('good.zip'), '--reexecute', '2')).code).toBe(4);
  });

  test('restore gives a run that show judges', async () => {
    expect((await lab('restore', at('good.zip'), at('restored'))).code).toBe(0);
    expect(await lab('show', at('restored'))).toMatchObject({ code: 0 });
    expect((await lab('restore', at('good.zip'), at('restored'))).code).toBe(2);
  });
});
