import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  draft,
  failure,
  gated,
  layout,
  readSafetensors,
  temporaryFolder,
  waybill,
  waybillJson,
} from './harness.js';

const folder = temporaryFolder();
const at = (name: string): string => join(folder, name);
const prompt = 'Wherefore the ostrich galloped';
const base = ['generate', '-m', draft, '-p', prompt, '-n', '8'];
const statementOf = (path: string) => JSON.parse(readFileSync(path, 'utf8'));
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe('--logits', () => {
  test('holds the rows whose digests the run gives', async () => {
    const run = await waybillJson([...base, '--logits', at('one.safetensors')]);
    const { shape, bytes } = readSafetensors(at('one.safetensors')).get('logits')!;
    expect(shape).toEqual([8, 8192]);
    const rows = Array.from({ length: 8 }, (_, row) => bytes.subarray(row * 32768, (row + 1) * 32768));
    expect(rows.map(sha256)).toEqual(run.digests.logits);
    expect(rows.map((row) => argmax(row))).toEqual(run.tokenIds);
  });

  test('of a batch: a tensor a request', async () => {
    writeFileSync(at('two.jsonl'), '"Once"\n"The sea was"\n');
    const run = await waybillJson([
      'generate',
      '-m',
      draft,
      '--prompts',
      at('two.jsonl'),
      '-n',
      '3',
      '--logits',
      at('two.safetensors'),
    ]);
    const tensors = readSafetensors(at('two.safetensors'));
    expect([...tensors.keys()]).toEqual(['logits_0', 'logits_1']);
    run.requests.forEach(({ digests, tokenIds }, index) => {
      const { shape, bytes } = tensors.get(`logits_${index}`)!;
      expect(shape).toEqual([tokenIds.length, 8192]);
      expect(
        tokenIds.map((_: number, row: number) => sha256(bytes.subarray(row * 32768, (row + 1) * 32768))),
      ).toEqual(digests.logits);
    });
    expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual([]);
  });
});

describe('--trace', () => {
  test('lists every move that the ledger counts', async () => {
    const run = await waybillJson([
      ...base,
      '--policy',
      'packets',
      '--budget',
      '3300000',
      '--trace',
      at('trace.jsonl'),
    ]);
    const lines = readFileSync(at('trace.jsonl'), 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.map(({ sequence }) => sequence)).toEqual(lines.map((_, index) => index + 1));
    const sums: Record<string, number> = {};
    for (const { cause, bytes } of lines) sums[cause] = (sums[cause] ?? 0) + bytes;
    const counted: Record<string, number> = {};
    for (const part of [run.bytes.moved, run.bytes.setupMoved])
      for (const [cause, bytes] of Object.entries(part))
        counted[cause] = (counted[cause] ?? 0) + Number(bytes);
    for (const [cause, bytes] of Object.entries(counted)) expect(sums[cause] ?? 0, cause).toBe(bytes);
    expect(sums['packet-rows']).toBeGreaterThan(0);
  });
});

describe('--trace-ops and diff', () => {
  const record = (model: string, name: string, ...flags: string[]) =>
    waybillJson([
      'generate',
      '-m',
      model,
      '-n',
      '3',
      '--prompt-ids',
      '2,100,524,31',
      '--trace-ops',
      at(name),
      ...flags,
    ]);
  const diff = async (a: string, b: string) => {
    const { code, stdout } = await waybill(['diff', at(a), at(b)]);
    return { code, stdout };
  };

  test.each([
    ['opt', draft, '3300000'],
    ['gated', gated, '3400000'],
  ])('%s: policies and kernels agree in every op', async (kind, model, budget) => {
    await record(model, `${kind}-resident`, '--policy', 'resident');
    await record(model, `${kind}-packets`, '--policy', 'packets', '--budget', budget);
    await record(model, `${kind}-stream`, '--policy', 'stream', '--budget', budget, '--kernels', 'wasm');
    await record(model, `${kind}-sparse`, '--policy', 'resident-sparse', '--backend', 'oracle');
    for (const other of ['packets', 'stream', 'sparse']) {
      expect(await diff(`${kind}-resident`, `${kind}-${other}`)).toEqual({
        code: 0,
        stdout: expect.stringMatching(/^bit-identical: \d+ ops\n$/),
      });
    }
  });

  test('names pass, layer, op and index of the first difference', async () => {
    await record(draft, 'kv-f16', '--policy', 'resident');
    await record(draft, 'kv-f32', '--policy', 'resident', '--kv', 'f32');
    const kv = await diff('kv-f16', 'kv-f32');
    expect(kv.code).toBe(1);
    expect(kv.stdout).toMatch(
      /^first difference: pass 1, layers\.0\.attention \(attention\), index \d+: \S+ against \S+; \d+ ops agreed/,
    );
    await waybillJson([
      'generate',
      '-m',
      draft,
      '-n',
      '3',
      '--prompt-ids',
      '2,100,524,32',
      '--trace-ops',
      at('other'),
    ]);
    const other = await diff('kv-f16', 'other');
    expect(other).toMatchObject({ code: 1, stdout: expect.stringMatching(/pass 1, token-embedding/) });
    const index = Number(/index (\d+)/.exec(other.stdout)![1]);
    const width = 160;
    expect(Math.floor(index / width), `index ${index}`).toBeGreaterThanOrEqual(1); // the last token alone differs
    const { code, stdout } = await waybill(['diff', at('kv-f16'), at('kv-f32'), '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout).first).toMatchObject({
      pass: 1,
      label: 'layers.0.attention',
      kinds: ['attention', 'attention'],
    });
  });

  test('refuses what is no record, and never overwrites one', async () => {
    mkdirSync(at('broken'));
    writeFileSync(join(at('broken'), 'ops.jsonl'), '{"sequence":0}\n');
    expect(await failure(['diff', at('broken'), at('broken')])).toMatchObject({
      exit: 2,
      code: 'malformed-op-trace',
    });
    expect(await failure(['diff', at('nowhere'), at('broken')])).toMatchObject({
      exit: 2,
      code: 'unreadable-file',
    });
    const before = readFileSync(join(at('kv-f16'), 'ops.jsonl'));
    expect(await failure([...base, '--trace-ops', at('kv-f16')])).toMatchObject({
      exit: 2,
      code: 'file-exists',
    });
    expect(readFileSync(join(at('kv-f16'), 'ops.jsonl'))).toEqual(before);
    await failure([...base, '--budget', '5', '--trace-ops', at('never'), '--trace', at('never.jsonl')]);
    expect(existsSync(at('never')) || existsSync(at('never.jsonl'))).toBe(false);
  });
});

describe('--receipt', () => {
  test('verifies, signed and unsigned, and tampering exits with 6', async () => {
    await waybillJson(['keygen', at('key')]);
    expect(statSync(at('key.pem')).mode & 0o777).toBe(0o600);
    expect(await failure(['keygen', at('key')])).toMatchObject({ exit: 2, code: 'file-exists' });
    const run = await waybillJson([...base, '--receipt', at('signed.jsonl'), '--sign', at('key.pem')]);
    expect(statSync(at('signed.jsonl.salt')).mode & 0o777).toBe(0o600);
    const flags = ['--key', at('key.pub.pem'), '--model', draft];
    const good = await waybill(['verify', at('signed.jsonl'), ...flags]);
    expect(good.code).toBe(0);
    expect(good.stdout).toMatch(/^ok +it is signed by "key.pub.pem"$/m);
    expect(good.stdout).toMatch(/^ok +checkpoint\/model.safetensors has SHA-256/m);
    expect(good.stdout).not.toContain('BROKEN');
    const envelope = statementOf(at('signed.jsonl'));
    const payload = JSON.parse(Buffer.from(envelope.payload, 'base64').toString('utf8'));
    expect(payload.predicate.requests[0].logitsDigests).toEqual(run.digests.logits);
    const changed = Buffer.from(
      JSON.stringify(payload).replace('"resident-sparse"', '"resident"'),
      'utf8',
    ).toString('base64');
    writeFileSync(at('changed.jsonl'), `${JSON.stringify({ ...envelope, payload: changed })}\n`);
    expect((await waybill(['verify', at('changed.jsonl'), ...flags])).code).toBe(6);
    expect((await waybill(['verify', at('signed.jsonl'), '--model', gated])).code).toBe(6);
    await waybillJson(['keygen', at('other')]);
    expect((await waybill(['verify', at('signed.jsonl'), '--key', at('other.pub.pem')])).code).toBe(6);
    expect(await failure(['verify', at('signed.jsonl'), '--key', at('key.pem')])).toMatchObject({
      exit: 2,
      code: 'bad-key',
    });
    expect(await failure(['verify', at('signed.jsonl'), '--model', at('nowhere')])).toMatchObject({
      exit: 3,
      code: 'no-such-folder',
    });
    expect(await failure(['verify', at('nowhere')])).toMatchObject({ exit: 2, code: 'unreadable-file' });
    expect(await failure(['verify', at('key.pub.pem')])).toMatchObject({
      exit: 6,
      code: 'malformed-receipt',
    });
  });

  test('holds no prompt, no text, no ids unless they are wanted', async () => {
    await waybillJson([...base, '--receipt', at('plain.jsonl'), '--trace', at('plain-trace.jsonl')]);
    const full = await waybillJson([...base, '--receipt', at('full.jsonl'), '--include-content']);
    const { content } = statementOf(at('full.jsonl')).predicate.requests[0];
    expect(content).toMatchObject({ tokenIds: full.tokenIds, text: full.text });
    const sequences = [content.promptIds, content.tokenIds].map((ids: number[]) => ids.slice(0, 3).join(','));
    for (const name of ['plain.jsonl', 'plain-trace.jsonl', 'plain.jsonl.salt']) {
      const bytes = readFileSync(at(name), 'utf8');
      for (const secret of [prompt, 'ostrich', full.text, full.text.trim().slice(0, 12), ...sequences])
        expect(bytes.includes(secret), `${name}: ${secret}`).toBe(false);
    }
    const salt = Buffer.from(readFileSync(at('plain.jsonl.salt'), 'utf8').trim(), 'hex');
    const ids = Buffer.alloc(4 * content.promptIds.length);
    for (const [index, id] of content.promptIds.entries()) ids.writeUInt32LE(id, 4 * index);
    expect(statementOf(at('plain.jsonl')).predicate.requests[0].promptIdsDigest).toBe(
      sha256(Buffer.concat([salt, ids])),
    );
    expect((await waybill(['verify', at('full.jsonl')])).code).toBe(0);
  });

  test('cannot point out of the folder that it is checked against', async () => {
    await waybillJson([
      'generate',
      '-m',
      layout('opt-f32'),
      '--prompt-ids',
      '3',
      '-n',
      '2',
      '--receipt',
      at('tiny.jsonl'),
    ]);
    const statement = statementOf(at('tiny.jsonl'));
    for (const name of [
      'checkpoint/../config.json',
      'checkpoint/',
      'checkpoint//etc/passwd',
      'checkpoint/a\u0000b',
    ]) {
      statement.subject = [{ name, digest: { sha256: 'a'.repeat(64) } }];
      writeFileSync(at('odd.jsonl'), `${JSON.stringify(statement)}\n`);
      const { code, stderr } = await waybill(['verify', at('odd.jsonl'), '--model', layout('opt-f32')]);
      expect({ code, stderr }).toEqual({ code: 6, stderr: '' });
    }
  });
});

function argmax(row: Buffer): number {
  const values = new Float32Array(Uint8Array.from(row).buffer);
  return values.reduce((best, value, id) => (value > values[best]! ? id : best), 0);
}
