import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { ZipFile } from 'yazl';
import { TamperedError } from '../../src/base/errors.js';
import {
  archiveStream,
  type Members,
  memberNameProblem,
  readArchive,
} from '../../src/lab/archive-container.js';

const text = (value: string) => Buffer.from(value, 'utf8');
const sample: Members = new Map([
  ['records/000001.json', text('{"a":1}\n')],
  ['manifest.json', text('{}\n')],
  ['attachments/empty.xml', text('')],
]);

async function packed(members: Members): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of archiveStream(members)) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

async function refusal(bytes: Uint8Array): Promise<string> {
  try {
    await readArchive(bytes, 'sample.zip');
  } catch (error) {
    expect(error).toBeInstanceOf(TamperedError);
    expect((error as Error).message).toMatch(/^Reading the archive "sample.zip" failed: .*[^.]$/);
    return (error as TamperedError).code;
  }
  return 'accepted';
}

/** A zip by hand: what no honest writer makes. */
interface HandMade {
  name: string;
  data?: Buffer;
  crc?: number;
  size?: number;
  attributes?: number;
  method?: number;
  flags?: number;
  offset?: number;
}

function handMade(entries: HandMade[], count = entries.length): Buffer {
  const pieces: Buffer[] = [];
  const central: Buffer[] = [];
  let at = 0;
  for (const { name, data = text('x'), ...changed } of entries) {
    const nameBytes = text(name);
    const crc = changed.crc ?? crc32(data);
    const size = changed.size ?? data.length;
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE(changed.flags ?? 0x0800, 2);
    common.writeUInt16LE(changed.method ?? 0, 4);
    common.writeUInt16LE(0x21, 8);
    common.writeUInt32LE(crc, 10);
    common.writeUInt32LE(size, 14);
    common.writeUInt32LE(size, 18);
    common.writeUInt16LE(nameBytes.length, 22);
    const local = Buffer.concat([text('PK\x03\x04'), common, nameBytes, data]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(changed.attributes ?? (0o100644 << 16) >>> 0, 6);
    tail.writeUInt32LE(changed.offset ?? at, 10);
    central.push(Buffer.concat([text('PK\x01\x02'), Buffer.from([63, 3]), common, tail, nameBytes]));
    pieces.push(local);
    at += local.length;
  }
  const directory = Buffer.concat(central);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(count & 0xffff, 8);
  end.writeUInt16LE(count & 0xffff, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...pieces, directory, end]);
}

describe('archive container', () => {
  test('gives back what was put in, and the same bytes whatever the order', async () => {
    const bytes = await packed(sample);
    expect(
      new Map([...(await readArchive(bytes, 'x'))].map(([name, data]) => [name, data.toString()])),
    ).toEqual(new Map([...sample].map(([name, data]) => [name, data.toString()])));
    expect(await packed(new Map([...sample].reverse()))).toEqual(bytes);
  });

  test('has the bytes that the format says', async () => {
    // If this changes, archives of earlier versions are refused: a new format is needed
    expect(
      createHash('sha256')
        .update(await packed(sample))
        .digest('hex'),
    ).toBe('b5078c9ab6eaf2d77131f88f6cbc1e9d2f91e33a21ee488bef6e3fe28c1cd851');
  });

  test('refuses every truncation', async () => {
    const bytes = await packed(sample);
    for (let length = 0; length < bytes.length; length++) {
      expect(await refusal(bytes.subarray(0, length)), `${length} bytes`).not.toBe('accepted');
    }
  });

  test('refuses every changed bit of every header, and notices those of members', async () => {
    const bytes = await packed(sample);
    for (let at = 0; at < bytes.length; at++) {
      for (let bit = 0; bit < 8; bit++) {
        const changed = Buffer.from(bytes);
        changed[at]! ^= 1 << bit;
        expect(await refusal(changed), `bit ${bit} of byte ${at}`).not.toBe('accepted');
      }
    }
  });

  test.each([
    ['traversal', [{ name: '../evil' }], 'archive-malformed'],
    ['traversal inside', [{ name: 'records/../../evil' }], 'archive-malformed'],
    ['an absolute path', [{ name: '/etc/passwd' }], 'archive-malformed'],
    ['a drive', [{ name: 'C:/evil' }], 'archive-malformed'],
    ['a backslash', [{ name: 'a\\evil' }], 'archive-malformed'],
    ['a hidden file', [{ name: '.bashrc' }], 'archive-unsafe-name'],
    ['a folder', [{ name: 'records/' }], 'archive-unsafe-name'],
    ['a control character', [{ name: 'a\u001b[2J' }], 'archive-unsafe-name'],
    ['a symbolic link', [{ name: 'link', attributes: (0o120777 << 16) >>> 0 }], 'archive-link'],
    ['a device', [{ name: 'dev', attributes: (0o060644 << 16) >>> 0 }], 'archive-not-a-file'],
    ['duplicate names', [{ name: 'a' }, { name: 'a' }], 'archive-duplicate-name'],
    ['names that differ in case alone', [{ name: 'a' }, { name: 'A' }], 'archive-case-collision'],
    ['a wrong CRC', [{ name: 'a', crc: 1 }], 'archive-wrong-crc'],
    ['a size beyond the file', [{ name: 'a', size: 100_000 }], 'archive-wrong-size'],
    ['encryption', [{ name: 'a', flags: 0x0801 }], 'archive-malformed'],
    ['compression', [{ name: 'a', method: 8 }], 'archive-compressed'],
    ['an unknown method', [{ name: 'a', method: 99 }], 'archive-compressed'],
    [
      'members that overlap',
      [
        { name: 'a', data: Buffer.alloc(99) },
        { name: 'b', data: Buffer.alloc(99), offset: 0 },
      ],
      'archive-not-canonical',
    ],
    ['an honest zip of another program', [{ name: 'a' }], 'archive-not-canonical'],
  ] satisfies [string, HandMade[], string][])('refuses %s', async (_, entries, code) => {
    expect(await refusal(handMade(entries))).toBe(code);
  });

  test('refuses a bomb of overlapping members before it reads them', async () => {
    const data = Buffer.alloc(1 << 20);
    const others = Array.from({ length: 2000 }, (_, index) => ({
      name: `m${index}`,
      data: Buffer.alloc(0),
      size: data.length,
      crc: crc32(data),
      offset: 0,
    }));
    expect(await refusal(handMade([{ name: 'first', data }, ...others]))).toBe('archive-wrong-size');
  });

  test('refuses a huge count of members', async () => {
    expect(await refusal(handMade([{ name: 'a' }], 65_534))).toBe('archive-malformed');
  });

  test('refuses a comment, and bytes before, behind and between', async () => {
    const bytes = await packed(sample);
    expect(await refusal(Buffer.concat([bytes, text('tail')]))).toBe('archive-malformed');
    expect(await refusal(Buffer.concat([text('head'), bytes]))).not.toBe('accepted');
    const commented = Buffer.concat([bytes, text('hello')]);
    commented.writeUInt16LE(5, bytes.length - 2);
    expect(await refusal(commented)).toBe('archive-not-canonical');
  });

  test('refuses what is no zip at all', async () => {
    expect(await refusal(text(''))).toBe('archive-malformed');
    expect(await refusal(text('{"not": "a zip"}'.repeat(100)))).toBe('archive-malformed');
  });

  test('will not write a name that it would not read', () => {
    for (const name of ['../a', '/a', 'a\\b', 'a/', '', 'a//b', '.a', 'a b', 'é', 'a.', 'x'.repeat(201)]) {
      expect(memberNameProblem(name), name).not.toBeNull();
      expect(() => archiveStream(new Map([[name, text('')]])), name).toThrow(/^Cannot archive/);
    }
  });

  test('refuses extra fields of other writers', async () => {
    const zip = new ZipFile();
    zip.addBuffer(text('x'), 'a', { compress: false });
    zip.end();
    const pieces: Buffer[] = [];
    for await (const piece of zip.outputStream as AsyncIterable<Buffer>) pieces.push(piece);
    expect(await refusal(Buffer.concat(pieces))).toBe('archive-not-canonical');
  });
});
