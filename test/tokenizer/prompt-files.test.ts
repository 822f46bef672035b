import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { InputError, UsageError, WaybillError } from '../../src/base/errors.js';
import {
  parsePromptIds,
  readPromptFile,
  readPromptStdin,
  readPromptsJsonl,
  readTextFile,
} from '../../src/checkpoint/prompt-files.js';

const folder = mkdtempSync(join(tmpdir(), 'waybill-prompt-'));
const path = join(folder, 'prompt');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const write = (bytes: Uint8Array | string): string => {
  writeFileSync(path, bytes);
  return path;
};

async function failure(work: () => unknown): Promise<WaybillError> {
  const error: unknown = await (async () => work())().then(
    (value) => value,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(WaybillError);
  return error as WaybillError;
}

describe('prompt files', () => {
  it.each<[string, string | Buffer, string]>([
    ['as it is', 'Hello  wörld\t 日本 🙂', 'Hello  wörld\t 日本 🙂'],
    ['without one line end', 'Hello\n', 'Hello'],
    ['without one Windows line end', 'Hello\r\n', 'Hello'],
    ['with further line ends', 'a\nb\n\n', 'a\nb\n'],
    ['without byte order mark', '\uFEFFHello', 'Hello'],
    ['with a second byte order mark', '\uFEFF\uFEFFHello', '\uFEFFHello'],
    ['with NUL', 'a\0b', 'a\0b'],
    ['empty', '', ''],
  ])('%s', async (_what, bytes, text) => {
    expect(await readPromptFile(write(bytes))).toBe(text);
    expect(
      await readPromptStdin(Readable.from([...Buffer.from(bytes)].map((byte) => Buffer.from([byte])))),
    ).toBe(text);
  });

  it('keeps the last line end of a text', async () => {
    expect(await readTextFile(write('\uFEFFa\n'))).toBe('a\n');
  });

  it.each<[string, number[], number]>([
    ['a stray continuation', [0x61, 0x80], 1],
    ['an overlong form', [0xc3, 0xa9, 0xc0, 0xaf], 2],
    ['an overlong form of three', [0xe0, 0x80, 0x80], 0],
    ['a surrogate', [0x61, 0x62, 0xed, 0xa0, 0x80], 2],
    ['beyond U+10FFFF', [0xf4, 0x90, 0x80, 0x80], 0],
    ['a cut character', [0x61, 0xe6, 0x97], 1],
    ['Latin-1', [0x66, 0xfc, 0x72], 1],
  ])('refuses %s', async (_what, bytes, byteOffset) => {
    const error = await failure(() => readPromptFile(write(Uint8Array.from(bytes))));
    expect(error).toBeInstanceOf(InputError);
    expect(error.code).toBe('prompt-invalid-utf8');
    expect(error.message).toContain(`offset ${byteOffset}`);
    expect(error.data.byteOffset).toBe(byteOffset);
  });

  it('refuses exactly what a strict decoder refuses, at a place where the bytes before are good', async () => {
    const strict = new TextDecoder('utf-8', { fatal: true });
    const decodes = (bytes: Uint8Array): boolean => {
      try {
        strict.decode(bytes);
        return true;
      } catch {
        return false;
      }
    };
    const byte = fc.constantFrom(
      0x41,
      0x80,
      0x8f,
      0x90,
      0x9f,
      0xa0,
      0xbf,
      0xc1,
      0xc2,
      0xdf,
      0xe0,
      0xed,
      0xef,
      0xf0,
      0xf4,
      0xf5,
      0xff,
    );
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 0 }).chain(() => fc.array(byte, { maxLength: 6 })),
        async (list) => {
          const bytes = Uint8Array.from(list);
          const whole = await readTextFile(write(bytes)).then(
            () => null,
            (error: unknown) => error as InputError,
          );
          expect(whole === null).toBe(decodes(bytes));
          if (whole !== null) expect(decodes(bytes.subarray(0, Number(whole.data.byteOffset)))).toBe(true);
        },
      ),
      { seed: 7, numRuns: 400 },
    );
  });

  it('names an absent file', async () => {
    const error = await failure(() => readPromptFile(join(folder, 'absent')));
    expect(error.code).toBe('prompt-file-unreadable');
    expect(error.message).toContain('does not exist');
  });
});

describe('prompts as JSON lines', () => {
  it('reads texts, ids and strings', async () => {
    const lines = [
      '\uFEFF{"prompt": "a\\nb"}',
      '',
      '{"prompt_ids": [2, 100, 524]}\r',
      '"plain"',
      '  ',
      '{"prompt":""}',
    ];
    expect(await readPromptsJsonl(write(lines.join('\n')))).toEqual(['a\nb', [2, 100, 524], 'plain', '']);
  });

  it.each<[string, string, number]>([
    ['no JSON', '"a"\n{prompt}', 2],
    ['a number', '1', 1],
    ['an unknown key', '{"prompt": "a", "max": 1}', 1],
    ['both kinds', '{"prompt": "a", "prompt_ids": [1]}', 1],
    ['a repeated key', '"a"\n\n{"prompt": "a", "prompt": "b"}', 3],
    ['no ids', '{"prompt_ids": []}', 1],
    ['a negative id', '{"prompt_ids": [-1]}', 1],
    ['a fractional id', '{"prompt_ids": [1.5]}', 1],
    ['an id as text', '{"prompt_ids": ["1"]}', 1],
    ['an id of 2^31', '{"prompt_ids": [2147483648]}', 1],
    ['a list', '[1, 2]', 1],
  ])('refuses %s', async (_what, text, line) => {
    const error = await failure(() => readPromptsJsonl(write(text)));
    expect(error.code).toBe('prompts-malformed');
    expect(error.message).toContain(`line ${line} `);
    expect(error.data.line).toBe(line);
  });

  it('refuses a file without prompts', async () => {
    expect((await failure(() => readPromptsJsonl(write('\n \n')))).code).toBe('prompts-empty');
  });
});

describe('prompt ids', () => {
  it('reads them as given', () => {
    expect(parsePromptIds('2,100,524')).toEqual([2, 100, 524]);
    expect(parsePromptIds(' 0 , 2147483647')).toEqual([0, 2147483647]);
  });

  it.each(['', ',', '1,', '1,,2', '-1', '1.5', '1e3', '0x10', 'a', '2147483648', '1 2'])(
    'refuses "%s"',
    async (text) => {
      const error = await failure(() => parsePromptIds(text));
      expect(error).toBeInstanceOf(UsageError);
      expect(error.code).toBe('prompt-ids-malformed');
    },
  );
});
