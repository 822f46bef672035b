import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkFrozen, freezeProtocol } from '../../src/lab/freeze.js';
import { protocolChanges, supersededProtocols } from '../../src/lab/protocol-chain.js';
import { type ProtocolFile, parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import { sampleProtocol, yamlBytes } from './support/sample-protocol.js';

const at = '2026-01-02T03:04:05+00:00';
const draft = (changes: Partial<Protocol> = {}): ProtocolFile =>
  parseProtocol(yamlBytes(sampleProtocol(changes)), 'draft.yaml');
const read = (text: string, name = 'p.yaml'): ProtocolFile => parseProtocol(Buffer.from(text, 'utf8'), name);

describe('freezing', () => {
  test('writes the digest of everything else, and keeps comments and words', () => {
    const text = `# why\n${Buffer.from(yamlBytes(sampleProtocol())).toString('utf8')}`;
    const file = read(text);
    const frozen = freezeProtocol(file, at);
    expect(frozen.startsWith('# why\n')).toBe(true);
    expect(read(frozen).protocol.frozen).toEqual({ digest: file.digest, at });
    expect(() => checkFrozen(read(frozen))).not.toThrow();
  });

  test('shows every change of a value, and none of layout', () => {
    const frozen = freezeProtocol(draft(), at);
    const refused = { code: 'protocol-changed', exitCode: 6 };
    for (const [from, to] of [
      ['seed: 7', 'seed: 8'],
      ['bound: "1.00"', 'bound: "1.01"'],
      ['name: sample', 'name: simple'],
      ['Nothing is said', 'Little is said'],
    ] as const) {
      expect(frozen).toContain(from);
      expect(() => checkFrozen(read(frozen.replace(from, to)))).toThrow(expect.objectContaining(refused));
    }
    expect(() => checkFrozen(read(`# a note\n\n${frozen}`))).not.toThrow();
  });

  test('is done once', () => {
    const frozen = read(freezeProtocol(draft(), at));
    expect(() => freezeProtocol(frozen, at)).toThrow(expect.objectContaining({ code: 'already-frozen' }));
    expect(() => checkFrozen(draft())).toThrow(expect.objectContaining({ code: 'not-frozen', exitCode: 2 }));
  });
});

describe('superseding', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'waybill-chain-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const first = read(freezeProtocol(draft(), at), 'first.yaml');
  const secondText = freezeProtocol(draft({ schedule: { ...sampleProtocol().schedule, blocks: 20 } }), at, {
    earlier: first,
    reason: 'ten pairs did not decide it',
  });
  const second = read(secondText, 'second.yaml');
  const thirdText = freezeProtocol(draft({ question: 'Another?' }), at, {
    earlier: second,
    reason: 'why not',
  });

  test('names the earlier digest and shows what changed', () => {
    expect(second.protocol.supersedes).toEqual({
      digest: first.digest,
      reason: 'ten pairs did not decide it',
    });
    expect(protocolChanges(first, second)).toEqual([{ path: 'schedule.blocks', before: 10, after: 20 }]);
  });

  test('is followed to the first, among the protocols of the folder', async () => {
    await writeFile(join(folder, 'first.yaml'), freezeProtocol(draft(), at));
    await writeFile(join(folder, 'second.yml'), secondText);
    await writeFile(join(folder, 'other.yaml'), 'a: [');
    const chain = await supersededProtocols(read(thirdText), folder);
    expect(chain.map(({ file }) => file.digest)).toEqual([second.digest, first.digest]);
    expect(await supersededProtocols(first, folder)).toEqual([]);
  });

  test('is refused where a link is missing, was changed, or is not the one that was named', async () => {
    await writeFile(join(folder, 'second.yaml'), secondText);
    await expect(supersededProtocols(read(thirdText), folder)).rejects.toMatchObject({
      code: 'superseded-protocol-missing',
    });
    await writeFile(join(folder, 'first.yaml'), freezeProtocol(draft(), at).replace('seed: 7', 'seed: 9'));
    await expect(supersededProtocols(read(thirdText), folder)).rejects.toMatchObject({
      code: 'protocol-changed',
    });
    const wrong = draft({ supersedes: { digest: 'a'.repeat(64), reason: 'x' } });
    expect(() => freezeProtocol(wrong, at, { earlier: first, reason: 'x' })).toThrow(
      expect.objectContaining({ code: 'supersession-mismatch' }),
    );
    expect(() => freezeProtocol(draft(), at, { earlier: draft(), reason: 'x' })).toThrow(
      expect.objectContaining({ code: 'not-frozen' }),
    );
  });
});
