import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyOf, editTensor } from './checkpoints.js';
import {
  draft,
  failure,
  finish,
  layout,
  start,
  target,
  temporaryFolder,
  waybill,
  waybillJson,
} from './harness.js';
import type { PreparedJson } from './json-shapes.js';

const long = [
  'generate',
  '-m',
  draft,
  '-p',
  'The old house',
  '-n',
  '1000',
  '--ignore-eos',
  '--backend',
  'oracle',
];
const noStack = /\n\s+at /;
const shell = process.platform === 'win32' ? undefined : 'bash';

function firstText(child: ReturnType<typeof start>): Promise<string> {
  return new Promise((seen) => child.stdout!.once('data', (bytes) => seen(String(bytes))));
}

describe('SIGINT while generating', () => {
  test('keeps what came: text, logits, a receipt that says so and verifies', async () => {
    const folder = temporaryFolder();
    const at = (name: string): string => join(folder, name);
    const child = start([
      ...long,
      '--receipt',
      at('r.jsonl'),
      '--include-content',
      '--logits',
      at('l.safetensors'),
      '--trace',
      at('t.jsonl'),
    ]);
    const first = await firstText(child);
    child.kill('SIGINT');
    const { code, stdout, stderr } = await finish(child);
    expect(code).toBe(130);
    expect(stderr).not.toMatch(noStack);
    const { predicate } = JSON.parse(readFileSync(at('r.jsonl'), 'utf8'));
    expect(predicate.status).toBe('interrupted');
    expect(predicate.requests[0].finishReason).toBe('interrupted');
    expect(first + stdout).toBe(`${predicate.requests[0].content.text}\n`);
    expect(readdirSync(folder).sort()).toEqual(['l.safetensors', 'r.jsonl', 'r.jsonl.salt', 't.jsonl']);
    expect(statSync(at('l.safetensors')).size).toBeGreaterThan(predicate.requests[0].newTokens * 8192 * 4);
    expect((await waybill(['verify', at('r.jsonl')])).code).toBe(0);
  });

  test('a second one ends the process at once', async () => {
    const folder = temporaryFolder();
    const child = start([...long, '--receipt', join(folder, 'r.jsonl')]);
    await firstText(child);
    const finished = finish(child);
    child.kill('SIGSTOP'); // both signals are there when it goes on
    child.kill('SIGINT');
    child.kill('SIGTERM');
    child.kill('SIGCONT');
    expect((await finished).code).toBe(130);
    expect(readdirSync(folder)).toEqual([]);
  });

  test('with --json still prints its one object', async () => {
    const child = start([...long, '--json', '--trace', '/dev/null/x']);
    expect((await finish(child)).code).toBe(3); // no such folder: told before anything runs
    const folder = temporaryFolder();
    const running = start([...long, '--json', '--trace', join(folder, 't.jsonl')]);
    const finished = finish(running);
    while (
      !existsSync(join(folder, 't.jsonl')) ||
      !readFileSync(join(folder, 't.jsonl'), 'utf8').includes('logits-readback')
    )
      await new Promise((done) => setTimeout(done, 20));
    running.kill('SIGTERM');
    const { code, stdout } = await finished;
    expect(code).toBe(130);
    expect(JSON.parse(stdout)).toMatchObject({ status: 'interrupted', finishReason: 'interrupted' });
  });
});

describe('a reader that goes away', () => {
  test.skipIf(shell === undefined)(
    'standard output closed: ends soon, exit code 130, no stack trace',
    async () => {
      const child = start(long);
      await firstText(child);
      child.stdout!.destroy();
      const err: string[] = [];
      child.stderr!.on('data', (bytes) => err.push(String(bytes)));
      const code = await new Promise((done) => child.on('exit', done));
      expect(code).toBe(130);
      expect(err.join('')).not.toMatch(noStack);
    },
  );

  test.each([['inspect', '-m', draft, '--tensors', '--json'], ['--help'], ['doctor']])(
    '%s',
    async (...args) => {
      const child = start(args);
      child.stdout!.destroy();
      const err: string[] = [];
      child.stderr!.on('data', (bytes) => err.push(String(bytes)));
      const code = await new Promise((done) => child.on('exit', done));
      expect([0, 130]).toContain(code); // the whole text may have fitted the pipe
      expect(err.join('')).toBe('');
    },
  );
});

describe('preparing', () => {
  test('killed, then run again', async () => {
    const home = temporaryFolder();
    const child = start(['prepare', '-m', target], { home });
    const finished = finish(child);
    while (
      !existsSync(join(home, 'waybill')) ||
      !readdirSync(join(home, 'waybill'), { recursive: true }).some(
        (name) => String(name).includes('tmp') || String(name).endsWith('weights.bin'),
      )
    ) {
      if (child.exitCode !== null) break;
      await new Promise((done) => setTimeout(done, 1));
    }
    child.kill('SIGKILL');
    await finished;
    const again = await waybillJson<PreparedJson>(['prepare', '-m', target], { home });
    expect(
      (await waybillJson<PreparedJson>(['prepare', '-m', target, '--verify'], { home })).manifestDigest,
    ).toBe(again.manifestDigest);
    expect(
      readdirSync(join(home, 'waybill')).filter(
        (name) => name !== 'digests' && !/^[0-9a-f]{64}$/.test(name) && !name.endsWith('.lock'),
      ),
    ).toEqual([]);
  });

  test('interrupted leaves nothing half-written', async () => {
    const home = temporaryFolder();
    const child = start(['prepare', '-m', target], { home });
    const finished = finish(child);
    await new Promise((seen) => child.stderr!.once('data', seen));
    child.kill('SIGINT');
    const { code, stderr } = await finished;
    expect([0, 130]).toContain(code); // a small model may be done before the signal
    expect(stderr).not.toMatch(noStack);
    const made = existsSync(join(home, 'waybill')) ? readdirSync(join(home, 'waybill')) : [];
    if (code === 130) expect(made.filter((name) => /^[0-9a-f]{64}$/.test(name))).toEqual([]);
  });

  test('two at once agree, and one of them did the work', async () => {
    const home = temporaryFolder();
    const both = await Promise.all(
      [0, 1].map(() => waybillJson<PreparedJson>(['prepare', '-m', target], { home })),
    );
    expect(both.filter(({ preparedNow }) => preparedNow)).toHaveLength(1);
    expect(both[0]!.manifestDigest).toBe(both[1]!.manifestDigest);
  });

  test("a checkpoint changed afterwards: an error in a place of one's own, prepared anew in the default place", async () => {
    const home = temporaryFolder();
    const folder = copyOf(layout('opt-f32'));
    const prepared = join(temporaryFolder(), 'own');
    const run = (...more: string[]) => ['generate', '-m', folder, '--prompt-ids', '3,4', '-n', '2', ...more];
    const before = await waybillJson(run(), { home });
    await waybillJson(run('--prepared', prepared), { home });
    editTensor(folder, 'model.decoder.final_layer_norm.bias', (values) => {
      values[0]! += 1;
    });
    const error = await failure(run('--prepared', prepared), { home });
    expect(error).toMatchObject({ exit: 6, code: 'source-changed', data: { file: 'model.safetensors' } });
    const after = await waybillJson(run(), { home });
    expect(after.digests).not.toEqual(before.digests);
    expect(readdirSync(join(home, 'waybill')).filter((name) => /^[0-9a-f]{64}$/.test(name))).toHaveLength(2);
  });
});

describe.skipIf(shell === undefined)('a full disk (by a limit on file sizes)', () => {
  const run = (...more: string[]) => ['generate', '-m', draft, '-p', 'Once', '-n', '4', ...more];

  test.each([
    ['--receipt', 'ulimit -f 1;'],
    ['--logits', 'ulimit -f 20;'],
    ['--trace', 'ulimit -f 1;'],
  ])('%s is an error and leaves nothing behind', async (flag, limit) => {
    await waybillJson(run()); // prepared before the limit
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'out'));
    writeFileSync(join(folder, 'out', 'file'), 'earlier');
    writeFileSync(join(folder, 'out', 'file.salt'), 'earlier salt');
    const error = await failure(
      run(flag, join(folder, 'out', 'file'), '--policy', 'stream', '--budget', '3400000'),
      { shell: limit },
    );
    expect(error).toMatchObject({ exit: 3, code: 'disk-full' });
    expect(readdirSync(join(folder, 'out'))).toEqual(['file', 'file.salt']);
    expect(readFileSync(join(folder, 'out', 'file.salt'), 'utf8')).toBe('earlier salt');
    // A trace is written as moves happen, and keeps what fitted
    if (flag !== '--trace') expect(readFileSync(join(folder, 'out', 'file'), 'utf8')).toBe('earlier');
  });
});

describe('standard output on a full disk', () => {
  test.skipIf(!existsSync('/dev/full'))('is one error in words, exit code 3 (needs /dev/full)', async () => {
    await waybillJson(['generate', '-m', draft, '-p', 'Once', '-n', '4']);
    for (const args of [long, ['inspect', '-m', draft, '--json'], ['doctor']]) {
      const { code, stderr } = await waybill([...args], { shell: 'exec >/dev/full;' });
      expect(stderr).not.toMatch(noStack);
      expect(stderr.match(/^waybill: .*$/gm)?.[0]).toBe(
        'waybill: Cannot write to standard output: the disk is full [output-lost]',
      );
      expect(code).toBe(3);
    }
  });
});
