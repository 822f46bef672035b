import { deflateRawSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { readTorchBin } from '../../src/checkpoint/torch-bin.js';
import { openWeightFile } from '../../src/checkpoint/weight-file.js';
import { expectError } from './support/errors.js';
import { folderOf } from './support/folders.js';
import { op, orderedDict, statePickle, tensorPickle, torchFile, zipFile } from './support/torch-file.js';

async function read(bytes: Uint8Array) {
  const file = await openWeightFile(folderOf({ 'pytorch_model.bin': bytes }), 'pytorch_model.bin');
  try {
    const tensors = await readTorchBin(file);
    const contents = new Map<string, Buffer>();
    for (const tensor of tensors) {
      const target = Buffer.alloc(tensor.byteLength);
      await file.read(tensor.byteOffset, target);
      contents.set(tensor.name, target);
    }
    return { tensors, contents };
  } finally {
    await file.close();
  }
}

const bytesTo = (length: number) => Uint8Array.from({ length }, (_, index) => index + 1);
const row = { key: '0', elements: 6, shape: [2, 3], strides: [3, 1] };

test.each([
  ['plain', {}],
  ['zip64', { zip64: true }],
  ['padded local headers', { padding: 37 }],
  ['zip64 and padded', { zip64: true, padding: 64 }],
])('finds storages where they lie: %s', async (_, options) => {
  const pickle = statePickle({
    a: tensorPickle(row),
    b: tensorPickle({ key: '1', elements: 2, shape: [2], strides: [1], storageClass: 'FloatStorage' }),
  });
  const { tensors, contents } = await read(torchFile(pickle, { 0: bytesTo(12), 1: bytesTo(8) }, options));
  expect(tensors.map(({ name, dtype, type, shape }) => ({ name, dtype, type, shape }))).toEqual([
    { name: 'a', dtype: 'HalfStorage', type: 'f16', shape: [2, 3] },
    { name: 'b', dtype: 'FloatStorage', type: 'f32', shape: [2] },
  ]);
  expect(contents.get('a')).toEqual(Buffer.from(bytesTo(12)));
  expect(contents.get('b')).toEqual(Buffer.from(bytesTo(8)));
});

test.each([2, 3, 4])('protocol %d is read', async (protocol) => {
  const { tensors } = await read(
    torchFile(statePickle({ a: tensorPickle(row) }, protocol), { 0: bytesTo(12) }),
  );
  expect(tensors).toHaveLength(1);
});

test('tensors share a storage by offset; parameters are tensors', async () => {
  const pickle = statePickle({
    table: tensorPickle(row),
    head: tensorPickle({ ...row, parameter: true }),
    second: tensorPickle({ ...row, offset: 3, shape: [3], strides: [1] }),
  });
  const { tensors, contents } = await read(torchFile(pickle, { 0: bytesTo(12) }));
  expect(tensors[1]!.byteOffset).toBe(tensors[0]!.byteOffset);
  expect(contents.get('second')).toEqual(Buffer.from(bytesTo(12).subarray(6)));
});

test('a storage may be larger than its entry says it needs to be', async () => {
  const pickle = statePickle({ a: tensorPickle(row) });
  expect((await read(torchFile(pickle, { 0: bytesTo(40) }))).tensors).toHaveLength(1);
});

test.each([
  ['transposed', { shape: [3, 2], strides: [1, 3] }],
  ['with gaps', { shape: [2, 2], strides: [3, 1] }],
  ['expanded', { shape: [6, 6], strides: [0, 1] }],
])('a %s tensor is listed as unreadable, with its strides', async (_, view) => {
  const { tensors } = await read(
    torchFile(statePickle({ a: tensorPickle({ ...row, ...view }) }), { 0: bytesTo(12) }),
  );
  expect(tensors[0]!.unreadable).toContain(`its strides are [${view.strides.join(', ')}]`);
});

test('strides that reach nothing do not matter', async () => {
  const pickle = statePickle({
    single: tensorPickle({ ...row, shape: [1, 6], strides: [77, 1] }),
    empty: tensorPickle({ ...row, shape: [0, 5], strides: [9, 9] }),
    scalar: tensorPickle({ ...row, shape: [], strides: [] }),
  });
  const { tensors } = await read(torchFile(pickle, { 0: bytesTo(12) }));
  expect(tensors.map(({ unreadable, byteLength }) => [unreadable, byteLength])).toEqual([
    [null, 12],
    [null, 0],
    [null, 2],
  ]);
});

test('a short or absent storage is named', async () => {
  const pickle = statePickle({ a: tensorPickle(row) });
  await expectError(
    () => read(torchFile(pickle, { 0: bytesTo(11) })),
    'torch-short-storage',
    'the storage "0" of tensor "a" has 11 bytes, wanted are 12',
  );
  await expectError(
    () => read(torchFile(pickle, { 1: bytesTo(12) })),
    'torch-missing-storage',
    'storage "0" of tensor "a"',
  );
});

test.each([
  ['an offset', { offset: 1 }],
  ['its shape', { shape: [3, 3], strides: [3, 1] }],
  ['its strides', { strides: [4, 1] }],
  ['a product beyond 2^53', { shape: [2 ** 40, 2 ** 40], strides: [1, 1] }],
  ['a stride beyond 2^52', { shape: [2, 3], strides: [2 ** 52, 1] }],
])('a tensor that leaves its storage by %s is refused', async (_, view) => {
  const bytes = torchFile(statePickle({ a: tensorPickle({ ...row, ...view }) }), { 0: bytesTo(12) });
  await expectError(() => read(bytes), 'torch-short-storage', 'tensor "a"');
});

test('a compressed, encrypted or repeated entry is refused', async () => {
  const pickle = statePickle({ a: tensorPickle(row) });
  const data = { name: 'archive/data.pkl', data: pickle };
  const packed = { name: 'archive/data/0', data: deflateRawSync(bytesTo(12)), method: 8 };
  await expectError(
    () => read(zipFile([data, packed])),
    'zip-compressed-entry',
    '"archive/data/0" is compressed',
  );
  await expectError(() => read(zipFile([{ ...packed, flags: 1 }])), 'zip-encrypted-entry', 'is encrypted');
  await expectError(
    () => read(zipFile([data, data])),
    'zip-duplicate-entry',
    'two entries are named "archive/data.pkl"',
  );
});

test('no pickle, two pickles, a big-endian archive, another format are refused', async () => {
  const pickle = statePickle({ a: tensorPickle(row) });
  await expectError(() => read(zipFile([{ name: 'x', data: pickle }])), 'torch-malformed', '0 entries');
  await expectError(
    () =>
      read(
        zipFile([
          { name: 'a/data.pkl', data: pickle },
          { name: 'b/data.pkl', data: pickle },
        ]),
      ),
    'torch-malformed',
    '2 entries',
  );
  await expectError(
    () => read(torchFile(pickle, { 0: bytesTo(12) }, { byteOrder: 'big' })),
    'torch-byte-order',
    'byte order is "big"',
  );
  await expectError(() => read(pickle), 'torch-legacy-format', 'before 1.6');
  await expectError(() => read(Buffer.from('GGUF')), 'zip-malformed', 'no zip archive');
  await expectError(() => read(Buffer.alloc(0)), 'zip-malformed', 'no zip archive');
});

test('an archive short of one byte, or cut anywhere, is refused', async () => {
  const bytes = torchFile(statePickle({ a: tensorPickle(row) }), { 0: bytesTo(12) });
  for (const cut of [1, 2, 21, 22, 60, 100, bytes.byteLength - 30]) {
    await expectError(() => read(bytes.subarray(0, -cut)), 'zip-malformed', 'pytorch_model.bin');
  }
});

test('a local header outside the file is refused', async () => {
  const bytes = torchFile(statePickle({ a: tensorPickle(row) }), { 0: bytesTo(12) });
  const central = bytes.indexOf(Buffer.from('PK\x01\x02'));
  bytes.writeUInt32LE(0x7fffffff, central + 42);
  await expectError(() => read(bytes), 'zip-malformed', /data.pkl|outside/);
});

test.each([
  ['os', 'system'],
  ['builtins', 'eval'],
  ['__builtin__', 'getattr'],
  ['collections', 'Counter'],
  ['torch', 'load'],
  ['torch', 'ComplexFloatStorage'],
  ['torch._utils', '_rebuild_sparse_tensor'],
  ['torch.storage', '_load_from_bytes'],
  ['numpy.core.multiarray', '_reconstruct'],
  ['constructor', 'constructor'],
  ['torch', '__proto__'],
  ['torch', 'hasOwnProperty'],
])('a pickle that names %s.%s is refused, run or not', async (module, name) => {
  const evil = op.call(op.global(module, name), op.text('touch /tmp/pwned'));
  for (const value of [evil, op.global(module, name)]) {
    const error = await expectError(
      () => read(torchFile(statePickle({ a: tensorPickle(row), evil: value }), { 0: bytesTo(12) })),
      'pickle-forbidden-global',
      `it names "${module}.${name}"`,
    );
    expect(error.data).toMatchObject({ global: `${module}.${name}` });
  }
});

test('a name given on the stack (protocol 4) is refused too', async () => {
  const evil = Buffer.concat([op.text('os'), op.text('system'), Buffer.from([0x93])]);
  await expectError(
    () => read(torchFile(statePickle({ evil }, 4), {})),
    'pickle-forbidden-global',
    '"os.system"',
  );
});

test.each([
  ['INST', Buffer.from('(ios\nsystem\n')],
  ['OBJ', Buffer.from('o')],
  ['NEWOBJ', Buffer.from([0x81])],
  ['NEWOBJ_EX', Buffer.from([0x92])],
  ['EXT1', Buffer.from([0x82, 1])],
  ['PERSID', Buffer.from('Pstorage\n')],
  ['DUP', Buffer.from('2')],
  ['INT', Buffer.from('I1\n')],
  ['LONG4', Buffer.from([0x8b, 0, 0, 0, 0x7f])],
  ['EMPTY_SET', Buffer.from([0x8f])],
  ['BYTEARRAY8', Buffer.from([0x96])],
  ['an unassigned byte', Buffer.from([0x01])],
])('opcode %s is refused', async (_, bytes) => {
  await expectError(
    () => read(torchFile(Buffer.concat([op.proto(2), op.none, bytes, op.stop]), {})),
    'pickle-forbidden-opcode',
    /opcode 0x[0-9a-f]{2}/,
  );
});

test.each([
  ['ends inside an opcode', [op.proto(2), Buffer.from([0x58, 9, 0])]],
  ['never stops', [op.proto(2), op.none]],
  ['announces a string beyond its end', [op.proto(2), Buffer.from([0x58, 255, 255, 255, 255]), op.stop]],
  [
    'announces a string of 2^63 bytes',
    [op.proto(4), Buffer.from([0x8d, 0, 0, 0, 0, 0, 0, 0, 0x80]), op.stop],
  ],
  ['has an empty stack', [op.proto(2), op.stop]],
  ['leaves values', [op.proto(2), op.none, op.none, op.stop]],
  ['pops a mark', [op.proto(2), op.mark, op.stop]],
  ['groups without a mark', [op.proto(2), op.none, op.tuple, op.stop]],
  ['recalls what it never stored', [op.proto(2), Buffer.from('h\x07'), op.stop]],
  ['is of protocol 5', [op.proto(5), op.none, op.stop]],
  ['is of protocol 0', [op.proto(0), op.none, op.stop]],
  ['calls data', [op.proto(2), op.none, op.emptyTuple, op.reduce, op.stop]],
  ['sets items of None', [op.proto(2), op.none, op.mark, op.none, op.none, op.setItems, op.stop]],
  ['sets half an item', [op.proto(2), op.emptyDict, op.mark, op.none, op.setItems, op.stop]],
  ['builds a tuple', [op.proto(2), op.emptyTuple, op.emptyDict, op.build, op.stop]],
  ['has a string that is no UTF-8', [op.proto(2), Buffer.from([0x58, 1, 0, 0, 0, 0xff]), op.stop]],
])('a pickle that %s is refused', async (_, parts) => {
  await expectError(
    () => read(torchFile(Buffer.concat(parts), {})),
    'pickle-malformed',
    'Reading the pickle',
  );
});

const rebuild = op.global('torch._utils', '_rebuild_tensor_v2');
test.each([
  ['a state that is no dict', [op.proto(2), op.none, op.stop]],
  [
    'a class called as a function',
    [op.proto(2), op.call(op.global('torch', 'HalfStorage'), op.int(3)), op.stop],
  ],
  [
    'a tensor of no storage',
    [
      op.proto(2),
      op.call(rebuild, op.none, op.int(0), op.emptyTuple, op.emptyTuple, op.false, orderedDict),
      op.stop,
    ],
  ],
  ['a tensor of no arguments', [op.proto(2), op.call(rebuild), op.stop]],
  ['a pointer to no storage', [op.proto(2), op.text('module'), op.persistent, op.stop]],
  [
    'a storage of a function',
    [
      op.proto(2),
      op.group(op.text('storage'), rebuild, op.text('0'), op.text('cpu'), op.int(1)),
      op.persistent,
      op.stop,
    ],
  ],
  [
    'a parameter of no tensor',
    [
      op.proto(2),
      op.call(op.global('torch._utils', '_rebuild_parameter'), op.none, op.false, orderedDict),
      op.stop,
    ],
  ],
  ['a negative size', [statePickle({ a: tensorPickle({ ...row, shape: [-2, 3] }) })]],
  ['a negative stride', [statePickle({ a: tensorPickle({ ...row, strides: [-3, 1] }) })]],
  ['a negative offset', [statePickle({ a: tensorPickle({ ...row, offset: -1 }) })]],
  ['a negative storage', [statePickle({ a: tensorPickle({ ...row, elements: -1 }) })]],
  ['fewer strides than sizes', [statePickle({ a: tensorPickle({ ...row, strides: [1] }) })]],
  [
    '65 dimensions',
    [statePickle({ a: tensorPickle({ ...row, shape: Array(65).fill(1), strides: Array(65).fill(1) }) })],
  ],
])('%s is refused', async (_, parts) => {
  await expectError(
    () => read(torchFile(Buffer.concat(parts), { 0: bytesTo(12) })),
    'torch-malformed',
    'failed',
  );
});

test('values that are no tensors, and attributes of the dict, are passed over', async () => {
  const attributes = Buffer.concat([op.emptyDict, op.text('_metadata'), orderedDict, op.setItem]);
  const state = statePickle({ a: tensorPickle(row), step: op.int(3), name: op.text('x') }).subarray(0, -1);
  const pickle = Buffer.concat([state, attributes, op.build, op.stop]);
  expect((await read(torchFile(pickle, { 0: bytesTo(12) }))).tensors.map(({ name }) => name)).toEqual(['a']);
});

test('bombs end early: nesting by memo, a million containers, a huge memo index', async () => {
  // Each level is a tuple of the level below, twice: 2^100000 leaves if anything walked it.
  const level = Buffer.from('(h\x01h\x01tq\x01');
  const doubling = Buffer.concat([
    op.proto(2),
    op.emptyTuple,
    Buffer.from('q\x01'),
    ...Array(100_000).fill(level),
  ]);
  await expectError(
    () => read(torchFile(Buffer.concat([doubling, op.stop]), {})),
    'pickle-malformed',
    'left over',
  );
  const containers = Buffer.concat([op.proto(2), Buffer.alloc(2_000_000, '}'), op.stop]);
  await expectError(() => read(torchFile(containers, {})), 'pickle-too-large', 'containers');
  const values = Buffer.concat([op.proto(2), Buffer.alloc(5_000_000, 'N'), op.stop]);
  await expectError(() => read(torchFile(values, {})), 'pickle-too-large', 'values');
  const memoized = Buffer.concat([op.proto(4), op.none, Buffer.alloc(1_500_000, 0x94), op.stop]);
  await expectError(() => read(torchFile(memoized, {})), 'pickle-too-large', 'values');
  const index = Buffer.concat([op.proto(2), op.none, Buffer.from([0x72, 255, 255, 255, 255]), op.stop]);
  await expectError(() => read(torchFile(index, {})), 'torch-malformed', 'no dict of tensors');
});

test('a pickle beyond the limit is not loaded', async () => {
  const bytes = torchFile(Buffer.alloc(33 * 1024 * 1024, 'N'), {});
  await expectError(() => read(bytes), 'torch-malformed', '"archive/data.pkl" has 34603008 bytes');
});
