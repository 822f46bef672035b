import { expect, test } from 'vitest';
import { largestHeaderBytes, readSafetensors } from '../../src/checkpoint/safetensors.js';
import { openWeightFile } from '../../src/checkpoint/weight-file.js';
import { expectError } from './support/errors.js';
import { folderOf } from './support/folders.js';
import { rawSafetensors } from './support/safetensors-file.js';

async function read(bytes: Uint8Array) {
  const file = await openWeightFile(folderOf({ 'model.safetensors': bytes }), 'model.safetensors');
  try {
    return await readSafetensors(file);
  } finally {
    await file.close();
  }
}

const entry = (begin: number, end: number, shape = [(end - begin) / 2], dtype = 'F16') => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});

test('gives name, type, shape and place of each tensor', async () => {
  const header = { b: entry(4, 16, [2, 3]), a: entry(0, 4, [1], 'F32'), c: entry(16, 18, [], 'BF16') };
  const tensors = await read(rawSafetensors(header, Buffer.alloc(18)));
  const begin = 8 + JSON.stringify(header).length;
  expect(tensors).toEqual([
    {
      name: 'b',
      dtype: 'F16',
      type: 'f16',
      shape: [2, 3],
      file: 'model.safetensors',
      byteOffset: begin + 4,
      byteLength: 12,
      unreadable: null,
    },
    {
      name: 'a',
      dtype: 'F32',
      type: 'f32',
      shape: [1],
      file: 'model.safetensors',
      byteOffset: begin,
      byteLength: 4,
      unreadable: null,
    },
    {
      name: 'c',
      dtype: 'BF16',
      type: 'bf16',
      shape: [],
      file: 'model.safetensors',
      byteOffset: begin + 16,
      byteLength: 2,
      unreadable: null,
    },
  ]);
});

test.each([
  ['absent', {}],
  ['null', { __metadata__: null }],
  ['empty', { __metadata__: {} }],
  ['of strings', { __metadata__: { format: 'pt' } }],
])('metadata may be %s', async (_, metadata) => {
  expect(await read(rawSafetensors({ ...metadata, a: entry(0, 4) }, Buffer.alloc(4)))).toHaveLength(1);
});

test.each([1, [], 'pt', { format: 1 }, { nested: {} }])('metadata %j is refused', async (metadata) => {
  const bytes = rawSafetensors({ __metadata__: metadata, a: entry(0, 4) }, Buffer.alloc(4));
  await expectError(() => read(bytes), 'safetensors-metadata', '"__metadata__"');
});

test('a header padded with spaces, and one without tensors, are read', async () => {
  expect(
    await read(rawSafetensors(`${JSON.stringify({ a: entry(0, 4) })}    `, Buffer.alloc(4))),
  ).toHaveLength(1);
  expect(await read(rawSafetensors('{}', Buffer.alloc(0)))).toEqual([]);
});

test('empty tensors may lie anywhere between others', async () => {
  const header = { a: entry(0, 4), e: entry(4, 4, [0, 7]), b: entry(4, 8) };
  expect(await read(rawSafetensors(header, Buffer.alloc(8)))).toHaveLength(3);
});

test('a tensor of a type outside the three is listed without one', async () => {
  const tensors = await read(
    rawSafetensors({ a: entry(0, 8, [1], 'I64'), b: entry(8, 11, [5], 'NEW_TYPE') }, Buffer.alloc(11)),
  );
  expect(tensors.map(({ dtype, type }) => [dtype, type])).toEqual([
    ['I64', null],
    ['NEW_TYPE', null],
  ]);
});

test.each([0, 1, 7])('a file of %d bytes is refused', async (length) => {
  await expectError(() => read(Buffer.alloc(length)), 'safetensors-truncated', `it has ${length} bytes`);
});

test.each([2n ** 63n, 2n ** 64n - 1n, BigInt(largestHeaderBytes) + 1n])(
  'a header length of %s is refused',
  async (length) => {
    await expectError(
      () => read(rawSafetensors({}, Buffer.alloc(0), length)),
      'safetensors-header-length',
      `${length} bytes, at most 100000000`,
    );
  },
);

test('a header longer than the file is refused', async () => {
  await expectError(
    () => read(rawSafetensors({}, Buffer.alloc(0), 3n)),
    'safetensors-truncated',
    'header ends at byte 11',
  );
  await expectError(
    () => read(rawSafetensors({}, Buffer.alloc(0), BigInt(largestHeaderBytes))),
    'safetensors-truncated',
    'the file at 10',
  );
});

test('a file short of one byte, or of all its data, names the tensor', async () => {
  const bytes = rawSafetensors({ a: entry(0, 4), b: entry(4, 8) }, Buffer.alloc(8));
  await expectError(() => read(bytes.subarray(0, -1)), 'safetensors-truncated', 'tensor "b" ends at byte');
  await expectError(() => read(bytes.subarray(0, -8)), 'safetensors-truncated', 'tensor "a" ends at byte');
});

test('overlap, holes and a tail are refused', async () => {
  const data = Buffer.alloc(8);
  await expectError(
    () => read(rawSafetensors({ a: entry(0, 6), b: entry(4, 8) }, data)),
    'safetensors-overlap',
    'tensors "a" and "b" overlap',
  );
  await expectError(
    () => read(rawSafetensors({ a: entry(0, 8), b: entry(0, 8) }, data)),
    'safetensors-overlap',
    'overlap',
  );
  await expectError(
    () => read(rawSafetensors({ a: entry(0, 2), b: entry(4, 8) }, data)),
    'safetensors-hole',
    '2 bytes before tensor "b"',
  );
  await expectError(
    () => read(rawSafetensors({ a: entry(0, 4) }, data)),
    'safetensors-hole',
    '4 bytes at its end',
  );
});

test('a duplicate tensor, or a duplicate field of one, is refused', async () => {
  const one = JSON.stringify(entry(0, 4));
  const two = JSON.stringify(entry(4, 8));
  await expectError(
    () => read(rawSafetensors(`{"a":${one},"a":${two}}`, Buffer.alloc(8))),
    'json-duplicate-key',
    '"a"',
  );
  await expectError(
    () =>
      read(
        rawSafetensors(
          '{"a":{"dtype":"F16","dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
          Buffer.alloc(4),
        ),
      ),
    'json-duplicate-key',
    '"dtype"',
  );
});

test.each([
  ['a number', 7, 'is not an object'],
  ['no dtype', { shape: [2], data_offsets: [0, 4] }, 'no "dtype"'],
  ['a dtype that is no string', { dtype: 1, shape: [2], data_offsets: [0, 4] }, 'no "dtype"'],
  ['a negative dimension', { dtype: 'F16', shape: [-2], data_offsets: [0, 4] }, 'no "shape"'],
  ['a fraction', { dtype: 'F16', shape: [1.5], data_offsets: [0, 4] }, 'no "shape"'],
  ['a string dimension', { dtype: 'F16', shape: ['2'], data_offsets: [0, 4] }, 'no "shape"'],
  ['one offset', { dtype: 'F16', shape: [2], data_offsets: [4] }, 'no "data_offsets"'],
  ['three offsets', { dtype: 'F16', shape: [2], data_offsets: [0, 4, 8] }, 'no "data_offsets"'],
  ['an offset of 2^53', { dtype: 'F16', shape: [2], data_offsets: [0, 2 ** 53] }, 'no "data_offsets"'],
  ['an end before its begin', { dtype: 'F16', shape: [2], data_offsets: [4, 0] }, 'ends at byte 0'],
  ['a wrong length', { dtype: 'F16', shape: [3], data_offsets: [0, 4] }, 'has 4 bytes, F16 [3] takes 6'],
  ['a wrong dtype', { dtype: 'F32', shape: [2], data_offsets: [0, 4] }, 'has 4 bytes, F32 [2] takes 8'],
  ['an overflowing shape', { dtype: 'F16', shape: [2 ** 32, 2 ** 32], data_offsets: [0, 4] }, 'passes 2^53'],
  [
    'a shape whose product wraps to 4 in 64 bits',
    { dtype: 'F16', shape: [2 ** 33, 2 ** 31, 1], data_offsets: [0, 4] },
    'passes 2^53',
  ],
])('an entry with %s is refused', async (_, value, message) => {
  await expectError(() => read(rawSafetensors({ a: value }, Buffer.alloc(4))), 'safetensors-entry', message);
});

test.each(['[]', '"a"', ' {}', ''])('the header %j is refused', async (header) => {
  await expectError(
    () => read(rawSafetensors(header, Buffer.alloc(0))),
    'safetensors-header',
    'begin with "{"',
  );
});

test('an offset beyond the file is refused before anything is read', async () => {
  const header = { a: entry(0, 4), b: entry(4, 4 + 2 ** 48) };
  await expectError(
    () => read(rawSafetensors(header, Buffer.alloc(4))),
    'safetensors-truncated',
    'tensor "b"',
  );
});
