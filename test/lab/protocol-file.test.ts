import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/base/errors.js';
import { type ProtocolProblem, parseProtocol } from '../../src/lab/protocol-file.js';
import type { Protocol } from '../../src/lab/protocol-schema.js';
import { publishedSchemas } from '../../src/lab/published-schema.js';
import { sampleProtocol, sessionArm, yamlBytes } from './support/sample-protocol.js';

const parse = (text: string) => parseProtocol(Buffer.from(text, 'utf8'), 'p.yaml');

function refusal(action: () => unknown): InputError {
  try {
    action();
  } catch (error) {
    if (error instanceof InputError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

const problems = (error: InputError): ProtocolProblem[] => error.data.problems as ProtocolProblem[];
const refuse = (changes: Partial<Protocol>) =>
  refusal(() => parseProtocol(yamlBytes(sampleProtocol(changes)), 'p.yaml'));

describe('a protocol file', () => {
  const good = Buffer.from(yamlBytes(sampleProtocol())).toString('utf8');

  test('is read, and its digest is that of its data and not of its layout', () => {
    const plain = parse(good);
    expect(plain.protocol.arms.map(({ name }) => name)).toEqual(['stream', 'packets']);
    expect(parse(`# a comment\n\n${good}`).digest).toBe(plain.digest);
    expect(parse(JSON.stringify(sampleProtocol())).digest).toBe(plain.digest);
    expect(parse(good.replace('seed: 7', 'seed: 8')).digest).not.toBe(plain.digest);
    const frozen = `${good}frozen:\n  digest: "${'0'.repeat(64)}"\n  at: "2026-01-02T03:04:05+00:00"\n`;
    expect(parse(frozen).digest).toBe(plain.digest);
  });

  test('names line and column of an unknown key', () => {
    const error = refusal(() => parse(good.replace('  warmUps: 1', '  warmUps: 1\n  warmup: 2')));
    expect(error.code).toBe('protocol-invalid');
    const line = good.split('\n').indexOf('  warmUps: 1') + 2;
    expect(problems(error)).toEqual([
      { line, column: 3, path: 'schedule.warmup', problem: 'unknown key "warmup"' },
    ]);
    expect(error.message).toContain(`line ${line}, column 3`);
  });

  test('names line and column of every duplicate key', () => {
    const text = good
      .replace('  seed: 7', '  seed: 7\n  seed: 8')
      .replace('name: sample', 'name: sample\nname: other');
    const error = refusal(() => parse(text));
    expect(error.code).toBe('protocol-syntax');
    const lines = text.split('\n');
    expect(problems(error).map(({ line, column }) => [line, column])).toEqual([
      [lines.indexOf('name: other') + 1, 1],
      [lines.indexOf('  seed: 8') + 1, 3],
    ]);
  });

  test('names the place of a missing key and of a wrong value', () => {
    const missing = refusal(() => parse(good.replace(/^question:.*\n/m, '')));
    expect(problems(missing)[0]).toMatchObject({ path: 'question' });
    const wrong = refusal(() => parse(good.replace('warmUps: 1', 'warmUps: -1')));
    const line = good.split('\n').indexOf('  warmUps: 1') + 1;
    expect(problems(wrong)[0]).toMatchObject({ line, column: 12, path: 'schedule.warmUps' });
  });

  test.each([
    ['NaN', (text: string) => text.replace('confidence: 0.95', 'confidence: .nan')],
    ['an infinity', (text: string) => text.replace('confidence: 0.95', 'confidence: .inf')],
    [
      'an alias',
      (text: string) =>
        text.replace('name: sample', 'name: &a sample').replace('program: any', 'program: *a'),
    ],
    ['a tag', (text: string) => text.replace('name: sample', 'name: !!binary c2FtcGxl')],
    ['two documents', (text: string) => `${text}---\na: 1\n`],
    ['a broken line', (text: string) => `${text}arms: [\n`],
    ['a list', () => '- 1\n'],
    ['nothing', () => ''],
  ])('refuses %s', (_, change) => {
    expect(refusal(() => parse(change(good))).code).toMatch(/^protocol-(syntax|invalid)$/);
  });

  test.each([
    ['a carriage return', Buffer.from(good.replace('\n', '\r\n'))],
    ['a byte order mark', Buffer.from(`\ufeff${good}`)],
    ['bytes that are not UTF-8', Buffer.concat([Buffer.from(good), Buffer.from([0xff])])],
  ])('refuses %s', (_, bytes) => {
    expect(refusal(() => parseProtocol(bytes, 'p.yaml')).code).toBe('protocol-encoding');
  });
});

describe('a protocol that would mean nothing is refused', () => {
  const [same, , faster] = sampleProtocol().gates;
  const schedule = sampleProtocol().schedule;

  test('a runtime gate on too few pairs', () => {
    expect(refuse({ schedule: { ...schedule, blocks: 8 } }).code).toBe('too-few-pairs');
  });

  test('an odd number of pairs', () => {
    expect(refuse({ schedule: { ...schedule, blocks: 11 } }).code).toBe('order-unbalanced');
  });

  test.each([
    ['all of one arm, then all of the other', ['stream', 'stream', 'packets', 'packets']],
    ['the same order in every block', ['stream', 'packets', 'stream', 'packets']],
    [
      'balanced in all, drifting in halves',
      ['stream', 'packets', 'stream', 'packets', 'packets', 'stream', 'packets', 'stream'],
    ],
  ])('an order that confounds drift: %s', (_, order) => {
    const error = refuse({ gates: [same!], schedule: { ...schedule, blocks: order.length / 2, order } });
    expect(error.code).toBe('order-confounds-drift');
  });

  test('a spelled order that is balanced is accepted', () => {
    const order = ['packets', 'stream', 'stream', 'packets'];
    const changes = { gates: [same!], schedule: { ...schedule, blocks: 2, order } };
    expect(parseProtocol(yamlBytes(sampleProtocol(changes)), 'p').protocol.schedule.order).toEqual(order);
  });

  test("a gate on the process's memory after an arm that may hold more", () => {
    const gate = {
      name: 'small',
      family: 'capacity',
      check: 'at-most',
      arm: 'packets',
      metric: 'peak-resident-set-bytes',
      statistic: 'each',
      bound: '1000000000',
    } as const;
    expect(refuse({ gates: [gate] }).code).toBe('start-order');
    const alone: Partial<Protocol> = {
      gates: [gate],
      isolation: 'process-per-trial',
      schedule: { ...schedule, warmUps: 0 },
    };
    expect(parseProtocol(yamlBytes(sampleProtocol(alone)), 'p').protocol.gates).toHaveLength(1);
  });

  test('a bounded start on a GPU after a reference that held the whole model there', () => {
    const gate = {
      name: 'bounded',
      family: 'capacity',
      check: 'at-most',
      arm: 'packets',
      metric: 'peak-device-used-bytes',
      statistic: 'each',
      bound: '5033164800',
    } as const;
    const gpu = { backend: 'cuda', kernels: 'auto', hostBudget: 'none' } as const;
    const arms = [sessionArm('packets', { ...gpu, policy: 'packets', budget: '4800MiB' })];
    const whole = sessionArm('whole', { ...gpu, policy: 'resident' });
    const one = { ...schedule, blocks: 1 };
    const first = refuse({ arms, gates: [gate], schedule: one, reference: { arm: whole, when: 'first' } });
    expect(first.code).toBe('start-order');
    expect(first.message).toContain('arm "whole" may hold more in the same process before "packets" does');
    const accepted: Partial<Protocol>[] = [
      { reference: { arm: whole, when: 'last' } },
      {
        reference: { arm: whole, when: 'first' },
        isolation: 'process-per-trial',
        schedule: { ...one, warmUps: 0 },
      },
    ];
    for (const changes of accepted) {
      const protocol = sampleProtocol({ arms, gates: [gate], schedule: one, ...changes });
      expect(parseProtocol(yamlBytes(protocol), 'p').protocol.gates).toHaveLength(1);
    }
  });

  test('an option that an arm needs and does not state, or states without effect', () => {
    const gates = [same!];
    const other = sessionArm('stream');
    const retention = sessionArm('packets', { policy: 'retention' });
    expect(refuse({ gates, arms: [other, retention] }).message).toContain('does not state "retain"');
    expect(
      refuse({ gates, arms: [other, { ...retention, policy: 'packets', retain: 'lru:8' }] }).message,
    ).toContain('"retain" has no effect in arm "packets"');
    expect(refuse({ gates, arms: [other, { ...retention, policy: 'forecast' }] }).message).toContain(
      '"forecast"',
    );
    const accepted = sampleProtocol({ gates, arms: [other, { ...retention, retain: 'lru:8' }] });
    expect(parseProtocol(yamlBytes(accepted), 'p').protocol.arms[1]).toMatchObject({ retain: 'lru:8' });
  });

  test('first-use metrics in a process that is not new, and warm-ups that warm nothing', () => {
    const gate = {
      name: 'first',
      family: 'useful-latency',
      check: 'at-most',
      arm: 'packets',
      metric: 'cold-first-token-ns',
      statistic: 'each',
      bound: '5000000000',
    } as const;
    expect(refuse({ gates: [gate] }).code).toBe('start-order');
    expect(refuse({ isolation: 'process-per-trial' }).code).toBe('warm-up-without-effect');
  });

  test('gates on unknown arms, on themselves, twice, of the wrong family, with nothing to compare', () => {
    if (faster?.check !== 'ratio-at-most') throw new Error('the sample changed');
    expect(refuse({ gates: [{ ...faster, against: 'other' }] }).message).toContain(
      '"other" is not one of stream, packets',
    );
    expect(refuse({ gates: [{ ...faster, against: 'packets' }] }).message).toContain('compared with itself');
    expect(refuse({ gates: [same!, same!] }).message).toContain('two gates are called "same bits"');
    expect(refuse({ gates: [{ ...faster, metric: 'moved-bytes' }] }).message).toContain('does not belong');
    const arms = [sessionArm('stream'), sessionArm('packets', { group: 'f32', kv: 'f32' })];
    expect(refuse({ arms, gates: [same!] }).message).toContain('want one');
    expect(refuse({ arms, gates: [{ ...same!, arms: ['stream'] } as never] }).message).toContain(
      'nothing else',
    );
    expect(refuse({ arms: [sessionArm('stream'), sessionArm('stream')], gates: [same!] }).message).toContain(
      'two arms',
    );
  });
});

describe('published schemas', () => {
  test.each(Object.entries(publishedSchemas()))(
    '%s is up to date (node scripts/write-lab-schemas.mjs)',
    (name, text) => {
      expect(readFileSync(`docs/formats/${name}`, 'utf8')).toBe(text);
    },
  );
});
