import { describe, expect, test } from 'vitest';
import { TamperedError } from '../../src/base/errors.js';
import {
  generateKeyPair,
  parsePrivateKey,
  parsePublicKey,
  preAuthenticationEncoding,
} from '../../src/receipt/dsse.js';
import { receiptLine, runStatement } from '../../src/receipt/seal.js';
import { type Claim, verifyReceipt } from '../../src/receipt/verify.js';
import { sampleRun, sampleSubjects } from './sample-run.js';

const bytesOf = (text: string): Uint8Array => Buffer.from(text, 'utf8');
const broken = (claims: readonly Claim[]): string[] =>
  claims.filter(({ verdict }) => verdict === 'broken').map(({ text }) => text);

const statement = runStatement(sampleSubjects, sampleRun());
const plain = `${receiptLine(statement, null)}\n`;
const pair = generateKeyPair();
const privateKey = parsePrivateKey(pair.privatePem, 'key.pem');
const publicKey = parsePublicKey(pair.publicPem, 'key.pub');
const signed = `${receiptLine(statement, privateKey)}\n`;

describe('pre-authentication encoding', () => {
  test('is the example of the DSSE specification', () => {
    const encoded = preAuthenticationEncoding('http://example.com/HelloWorld', bytesOf('hello world'));
    expect(encoded.toString('utf8')).toBe('DSSEv1 29 http://example.com/HelloWorld 11 hello world');
  });
});

describe('a receipt', () => {
  test('verifies as written, unsigned and signed', () => {
    const unsigned = verifyReceipt(bytesOf(plain), 'r');
    expect(broken(unsigned.claims)).toEqual([]);
    expect(unsigned.claims.find(({ text }) => text === 'it is signed')?.verdict).toBe('unchecked');
    const { claims } = verifyReceipt(bytesOf(signed), 'r', { keys: [{ name: 'key.pub', key: publicKey }] });
    expect(broken(claims)).toEqual([]);
    expect(claims.find(({ text }) => text === 'it is signed by "key.pub"')?.verdict).toBe('holds');
  });

  test('checks the digests of subjects at hand', () => {
    const digests = new Map([
      ['checkpoint/config.json', 'a'.repeat(64)],
      ['prepared/manifest.json', 'f'.repeat(64)],
    ]);
    const { claims } = verifyReceipt(bytesOf(plain), 'r', { digests });
    expect(broken(claims)).toEqual([`prepared/manifest.json has SHA-256 ${'b'.repeat(64)}`]);
  });

  test('of another signer, or of none, is broken when a key is given', () => {
    const other = parsePublicKey(generateKeyPair().publicPem, 'other.pub');
    const keys = [{ name: 'other.pub', key: other }];
    expect(broken(verifyReceipt(bytesOf(signed), 'r', { keys }).claims)).toEqual([
      'it is signed by "other.pub"',
    ]);
    expect(broken(verifyReceipt(bytesOf(plain), 'r', { keys }).claims)).toEqual(['it is signed']);
  });

  test.each([
    ['plain', plain],
    ['signed', signed],
  ])('%s: a change of any single byte is noticed', (_kind, text) => {
    const original = bytesOf(text);
    const keys = text === signed ? [{ name: 'key.pub', key: publicKey }] : [];
    const unnoticed: number[] = [];
    for (let at = 0; at < original.length; at++) {
      for (const flip of [0x01, 0x20, 0x80]) {
        const changed = Uint8Array.from(original);
        changed[at]! ^= flip;
        if (!isNoticed(changed, keys)) unnoticed.push(at);
      }
    }
    expect(unnoticed).toEqual([]);
  });

  test('of a device may not say more than its samples', () => {
    const run = sampleRun();
    const verdicts = (change: object, sampled: object | null = {}): string[] => {
      const samples = { source: 'process', peakBytes: '1000', samples: 4, intervalMs: 5, longestGapMs: 7.5 };
      const device = {
        allocatedBytes: '700',
        pinnedBytes: '64',
        boundedStart: true,
        sampled: sampled === null ? null : { ...samples, ...sampled },
      };
      const peaks = { ...run.peaks, device };
      const changed = { ...run, peaks, ...change } as typeof run;
      const line = `${receiptLine(runStatement(sampleSubjects, changed), null)}\n`;
      return broken(verifyReceipt(bytesOf(line), 'r').claims);
    };
    const beyond = { peakBytes: '1001' };
    expect(verdicts({})).toEqual([]);
    expect(verdicts({}, null)).toEqual([]);
    expect(verdicts({}, beyond)).toEqual([
      'the system saw at most 1000 bytes of the process on the device: 1001',
    ]);
    expect(verdicts({}, { ...beyond, source: 'shared' })).toEqual([]);
    expect(verdicts({ status: 'failed' }, beyond)).toEqual([]);
    expect(verdicts({ regime: 'resident' })).toEqual([
      'a process that held a whole model on the device claims no bounded start',
    ]);
  });

  test('with quantised weights says that it was not exact, and may not say otherwise', () => {
    const copy = { name: 'prepared/quantised/q4/manifest.json', digest: { sha256: 'c'.repeat(64) } };
    const claimsOf = (subjects: typeof sampleSubjects, exact: boolean) => {
      const text = receiptLine(
        runStatement(subjects, { ...sampleRun(), policy: 'resident-q4', exact }),
        null,
      );
      return verifyReceipt(bytesOf(`${text}\n`), 'r').claims;
    };
    const wanted = 'it was not exact: quantised weights were used (policy "resident-q4")';
    const said = claimsOf([...sampleSubjects, copy], false);
    expect(broken(said)).toEqual([]);
    expect(said).toContainEqual({ text: wanted, verdict: 'holds' });
    expect(broken(claimsOf([...sampleSubjects, copy], true))).toEqual([wanted]);
    expect(broken(claimsOf(sampleSubjects, false))).toEqual([wanted]);
  });

  test('a cut at any byte is noticed', () => {
    const original = bytesOf(plain);
    for (let length = 0; length < original.length; length++) {
      expect(isNoticed(original.subarray(0, length), []), `cut to ${length} bytes`).toBe(true);
    }
  });

  test('made anew over false figures is broken where the figures contradict each other', () => {
    const run = sampleRun();
    const claims = (change: Partial<typeof run>): string[] => {
      const forged = runStatement(sampleSubjects, { ...run, ...change });
      return broken(verifyReceipt(bytesOf(`${receiptLine(forged, null)}\n`), 'r').claims);
    };
    expect(claims({ bytes: { ...run.bytes, movedTotal: '119' } })).toEqual([
      'bytes moved by cause add up to their total',
    ]);
    expect(claims({ budgetBytes: '799' })).toEqual(['at most 799 bytes were held: 800']);
    expect(claims({ plan: { ...run.plan, plannedBytes: '801' } })).toEqual(['the plan adds up to its total']);
    expect(claims({ times: { ...run.times, totalNs: '31' } })).toEqual(['the times add up']);
    expect(claims({ requests: [{ ...run.requests[0]!, newTokens: 3 }] })).toEqual([
      'every new token has a logits digest',
    ]);
  });
});

function isNoticed(bytes: Uint8Array, keys: { name: string; key: typeof publicKey }[]): boolean {
  try {
    return broken(verifyReceipt(bytes, 'r', { keys }).claims).length > 0;
  } catch (error) {
    if (error instanceof TamperedError) return true;
    throw error;
  }
}
