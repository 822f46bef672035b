import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DefectError, ExecutionError, SetupError } from '../../src/base/errors.js';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import { expectError } from './support/errors.js';
import { folderOf } from './support/folders.js';
import { rawSafetensors, safetensorsFile } from './support/safetensors-file.js';
import { tinyOptConfig, tinyOptTensors } from './support/tiny-opt.js';
import { statePickle, tensorPickle, torchFile } from './support/torch-file.js';

const tensors = tinyOptTensors();
const names = Object.keys(tensors);

/** The tiny model as two shards and an index. */
function shards(): Record<string, Uint8Array | object> {
  const half = names.length >> 1;
  const part = (from: number, to: number) =>
    safetensorsFile(Object.fromEntries(Object.entries(tensors).slice(from, to)));
  return {
    'config.json': tinyOptConfig,
    'a.safetensors': part(0, half),
    'b.safetensors': part(half, names.length),
    'model.safetensors.index.json': {
      metadata: { total_size: 1 },
      weight_map: Object.fromEntries(
        names.map((name, at) => [name, at < half ? 'a.safetensors' : 'b.safetensors']),
      ),
    },
  };
}

/** The tiny model as a torch file, each tensor its own storage; `change` edits one tensor's record. */
function torchBytes(change: Readonly<Record<string, object>> = {}): Buffer {
  const pickles: Record<string, Buffer> = {};
  const storages: Record<string, Uint8Array> = {};
  for (const [at, [name, { shape, bytes }]] of Object.entries(tensors).entries()) {
    const strides = shape.map((_, axis) =>
      shape.slice(axis + 1).reduce((product, size) => product * size, 1),
    );
    pickles[name] = tensorPickle({
      key: String(at),
      elements: bytes.byteLength / 2,
      shape,
      strides,
      ...change[name],
    });
    storages[String(at)] = bytes;
  }
  return torchFile(statePickle(pickles), storages);
}

async function readAll(folder: string): Promise<Record<string, Buffer>> {
  const checkpoint = await openCheckpoint(folder);
  const contents: Record<string, Buffer> = {};
  for (const [name, tensor] of checkpoint.tensors)
    contents[name] = Buffer.from(await checkpoint.readTensor(tensor));
  await checkpoint.close();
  return contents;
}

const wanted = Object.fromEntries(
  Object.entries(tensors).map(([name, { bytes }]) => [name, Buffer.from(bytes)]),
);

test('one file, shards, and a torch file give the same bytes', async () => {
  const single = folderOf({ 'config.json': tinyOptConfig, 'model.safetensors': safetensorsFile(tensors) });
  const torch = folderOf({ 'config.json': tinyOptConfig, 'pytorch_model.bin': torchBytes() });
  expect(await readAll(single)).toEqual(wanted);
  expect(await readAll(folderOf(shards()))).toEqual(wanted);
  expect(await readAll(torch)).toEqual(wanted);
});

test('a sharded torch checkpoint is read', async () => {
  const index = {
    weight_map: Object.fromEntries(names.map((name) => [name, 'pytorch_model-00001-of-00001.bin'])),
  };
  const folder = folderOf({
    'config.json': tinyOptConfig,
    'pytorch_model-00001-of-00001.bin': torchBytes(),
    'pytorch_model.bin.index.json': index,
  });
  expect(await readAll(folder)).toEqual(wanted);
});

test('safetensors go before torch files, an index before a single file of its format', async () => {
  const broken = Buffer.from('broken');
  const all = {
    ...shards(),
    'model.safetensors': broken,
    'pytorch_model.bin.index.json': broken,
    'pytorch_model.bin': broken,
  };
  expect(await readAll(folderOf(all))).toEqual(wanted);
  const single = {
    'config.json': tinyOptConfig,
    'model.safetensors': safetensorsFile(tensors),
    'pytorch_model.bin.index.json': broken,
  };
  expect(await readAll(folderOf(single))).toEqual(wanted);
  const torch = { 'config.json': tinyOptConfig, 'pytorch_model.bin': torchBytes() };
  expect(await readAll(folderOf(torch))).toEqual(wanted);
  await expectError(
    () => openCheckpoint(folderOf({ ...torch, 'pytorch_model.bin.index.json': '{}' })),
    'index-malformed',
    '"weight_map" is absent',
  );
});

test('the index decides: files and tensors that it does not name do not count', async () => {
  const files = shards();
  const stray = safetensorsFile({ ...tinyOptTensors({ 'lm_head.weight': [11, 4] }) });
  const checkpoint = await openCheckpoint(
    folderOf({ ...files, 'c.safetensors': stray, 'model.safetensors': stray }),
  );
  expect([...checkpoint.tensors.keys()].sort()).toEqual([...names].sort());
  expect(checkpoint.files.map(({ name }) => name)).toEqual([
    'a.safetensors',
    'b.safetensors',
    'config.json',
    'model.safetensors.index.json',
  ]);
  await checkpoint.close();
});

test('a missing shard, and a tensor that is not where the index says, are named', async () => {
  const folder = folderOf(shards());
  rmSync(join(folder, 'b.safetensors'));
  await expectError(
    () => openCheckpoint(folder),
    'file-missing',
    'Opening "b.safetensors" failed: the file is absent',
  );
  const files = shards() as Record<string, { weight_map: Record<string, string> }>;
  files['model.safetensors.index.json']!.weight_map['lm_head.weight'] = 'a.safetensors';
  await expectError(
    () => openCheckpoint(folderOf(files)),
    'tensor-missing',
    'Reading "a.safetensors" failed: tensor "lm_head.weight" is absent, "model.safetensors.index.json" says',
  );
});

test.each([
  '../model.safetensors',
  'sub/../../model.safetensors',
  '/etc/passwd',
  'C:\\weights',
  'sub\\..\\..\\x',
  'c:x',
  '.',
  '..',
  './a.safetensors',
  'sub//a',
  'a\0b',
])('an index that points to %j is refused', async (file) => {
  const folder = folderOf({
    'config.json': tinyOptConfig,
    'model.safetensors.index.json': { weight_map: { x: file } },
  });
  await expectError(
    () => openCheckpoint(folder),
    'index-outside-folder',
    'inside the checkpoint folder is wanted',
  );
});

test.each([
  {},
  [],
  { weight_map: [] },
  { weight_map: {} },
  { weight_map: { a: 1 } },
  { weight_map: { a: '' } },
])('an index of %j is refused', async (index) => {
  const folder = folderOf({ 'config.json': tinyOptConfig, 'model.safetensors.index.json': index });
  await expectError(() => openCheckpoint(folder), 'index-malformed', '"weight_map"');
});

test('a shard in a subfolder is read', async () => {
  const index = { weight_map: Object.fromEntries(names.map((name) => [name, 'weights/a.safetensors'])) };
  const folder = folderOf({
    'config.json': tinyOptConfig,
    'weights/a.safetensors': safetensorsFile(tensors),
    'model.safetensors.index.json': index,
  });
  expect(await readAll(folder)).toEqual(wanted);
});

test('a hub snapshot of symbolic links into a blob folder is read', async () => {
  const hub = folderOf(
    Object.fromEntries(Object.entries(shards()).map(([name, content]) => [`blobs/${name}`, content])),
  );
  const snapshot = join(hub, 'snapshots', 'main');
  mkdirSync(snapshot, { recursive: true });
  for (const name of Object.keys(shards()))
    symlinkSync(join('..', '..', 'blobs', name), join(snapshot, name));
  expect(await readAll(snapshot)).toEqual(wanted);
});

test('a link that leads nowhere is a missing file', async () => {
  const folder = folderOf(shards());
  rmSync(join(folder, 'a.safetensors'));
  symlinkSync('nowhere', join(folder, 'a.safetensors'));
  await expectError(() => openCheckpoint(folder), 'file-missing', '"a.safetensors"');
});

test('a folder in place of a file is refused', async () => {
  const folder = folderOf({ 'config.json': tinyOptConfig, 'model.safetensors/x': 'x' });
  await expectError(
    () => openCheckpoint(folder),
    'file-unreadable',
    '"model.safetensors" failed: it is not a regular file',
  );
});

test.skipIf(process.platform === 'win32')(
  'a named pipe in place of a file is refused without waiting for a writer',
  async () => {
    for (const name of ['config.json', 'model.safetensors', 'model.safetensors.index.json']) {
      const folder = folderOf({
        'config.json': tinyOptConfig,
        'model.safetensors': safetensorsFile(tensors),
      });
      rmSync(join(folder, name), { force: true });
      execFileSync('mkfifo', [join(folder, name)]);
      await expectError(
        () => openCheckpoint(folder),
        'file-unreadable',
        `"${name}" failed: it is not a regular file`,
      );
    }
  },
);

test('a missing folder, config or weights are named with what was looked for', async () => {
  const error = await expectError(
    () => openCheckpoint(join(folderOf({}), 'none')),
    'checkpoint-missing',
    'ENOENT',
  );
  expect(error).toBeInstanceOf(SetupError);
  await expectError(() => openCheckpoint(folderOf({})), 'file-missing', '"config.json" is absent');
  await expectError(
    () => openCheckpoint(folderOf({ 'config.json': 'null' })),
    'json-null',
    'Reading "config.json" failed: it holds null, an object is wanted',
  );
  const file = folderOf({ x: 'x' });
  await expectError(() => openCheckpoint(join(file, 'x')), 'file-missing', 'it is not a folder');
  await expectError(
    () => openCheckpoint(folderOf({ 'config.json': tinyOptConfig })),
    'weights-missing',
    '"model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin"',
  );
});

test('a file short of one byte is refused, whatever its place', async () => {
  const folder = folderOf(shards());
  const bytes = shards()['b.safetensors'] as Buffer;
  truncateSync(join(folder, 'b.safetensors'), bytes.byteLength - 1);
  await expectError(
    () => openCheckpoint(folder),
    'safetensors-truncated',
    `"b.safetensors" failed: tensor "${names.at(-1)}" ends`,
  );
});

test('a header-only file is read and its tensors missed', async () => {
  const folder = folderOf({
    'config.json': tinyOptConfig,
    'model.safetensors': rawSafetensors('{}', Buffer.alloc(0)),
  });
  await expectError(
    () => openCheckpoint(folder),
    'tensor-missing',
    '"model.decoder.embed_tokens.weight" is absent',
  );
});

test('a tensor of another type is refused where it is needed, and only there', async () => {
  const bytes = Buffer.alloc(6 * 4 * 8);
  const needed = { ...tensors, 'model.decoder.layers.0.fc1.weight': { dtype: 'F64', shape: [6, 4], bytes } };
  const folder = folderOf({ 'config.json': tinyOptConfig, 'model.safetensors': safetensorsFile(needed) });
  await expectError(
    () => openCheckpoint(folder),
    'tensor-type',
    'tensor "model.decoder.layers.0.fc1.weight" of "model.safetensors" failed: its type is "F64", F32, F16 or BF16 is wanted',
  );
  const spare = { ...tensors, position_ids: { dtype: 'I64', shape: [1], bytes: Buffer.alloc(8) } };
  const checkpoint = await openCheckpoint(
    folderOf({ 'config.json': tinyOptConfig, 'model.safetensors': safetensorsFile(spare) }),
  );
  expect(checkpoint.description.notes).toEqual([
    'ignored a tensor without a place in this configuration: "position_ids"',
  ]);
  await checkpoint.close();
});

test('a transposed tensor of a torch file is refused by name', async () => {
  const name = 'model.decoder.layers.0.self_attn.q_proj.weight';
  const folder = folderOf({
    'config.json': tinyOptConfig,
    'pytorch_model.bin': torchBytes({ [name]: { strides: [1, 4] } }),
  });
  await expectError(
    () => openCheckpoint(folder),
    'tensor-layout',
    `tensor "${name}" of "pytorch_model.bin" failed: its strides are [1, 4]`,
  );
});

test('ranges are read by position; reads outside a tensor are defects', async () => {
  const checkpoint = await openCheckpoint(folderOf(shards()));
  const tensor = checkpoint.tensor('model.decoder.layers.0.fc2.weight');
  const bytes = wanted[tensor.name]!;
  for (const [begin, end] of [
    [0, 0],
    [0, 1],
    [5, 17],
    [bytes.byteLength - 1, bytes.byteLength],
    [bytes.byteLength, bytes.byteLength],
  ] as const) {
    const target = Buffer.alloc(end - begin);
    await checkpoint.readRange(tensor, begin, target);
    expect(target).toEqual(bytes.subarray(begin, end));
  }
  for (const [begin, length] of [
    [-1, 1],
    [0, bytes.byteLength + 1],
    [bytes.byteLength, 1],
    [Number.NaN, 1],
  ] as const) {
    await expect(checkpoint.readRange(tensor, begin, Buffer.alloc(length))).rejects.toThrow(DefectError);
  }
  expect(() => checkpoint.tensor('none')).toThrow(DefectError);
  await checkpoint.close();
  await expectError(() => checkpoint.readTensor(tensor), 'checkpoint-closed', 'the checkpoint is closed');
  await checkpoint.close();
});

test('a file that shrinks after opening is a short read', async () => {
  const folder = folderOf({ 'config.json': tinyOptConfig, 'model.safetensors': safetensorsFile(tensors) });
  const checkpoint = await openCheckpoint(folder);
  const tensor = checkpoint.tensor(names.at(-1)!);
  truncateSync(join(folder, 'model.safetensors'), tensor.byteOffset + 3);
  const error = await expectError(
    () => checkpoint.readTensor(tensor),
    'short-read',
    'the file ended after 3',
  );
  expect(error).toBeInstanceOf(ExecutionError);
  await checkpoint.close();
});

test('configuration files are JSON of at most 64 MiB, and faults name the file', async () => {
  const weights = { 'model.safetensors': safetensorsFile(tensors) };
  await expectError(
    () => openCheckpoint(folderOf({ ...weights, 'config.json': '{"a": 1, "a": 2}' })),
    'json-duplicate-key',
    '"config.json"',
  );
  await expectError(
    () =>
      openCheckpoint(folderOf({ ...weights, 'config.json': tinyOptConfig, 'generation_config.json': '{' })),
    'json-syntax',
    '"generation_config.json"',
  );
  const large = folderOf({ ...weights, 'config.json': '{}' });
  writeFileSync(join(large, 'config.json'), '');
  truncateSync(join(large, 'config.json'), 64 * 1024 * 1024 + 1);
  await expectError(() => openCheckpoint(large), 'json-too-long', '67108865 bytes');
});
