import { createHash } from 'node:crypto';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openOrPrepare } from '../../src/checkpoint/open-or-prepare.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { openPrepared } from '../../src/checkpoint/prepared-open.js';
import { sourceTensors, transposed } from './source-tensors.js';

let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'waybill-prepare-'));
});
afterAll(() => rm(root, { recursive: true, force: true }));

/** A home of its own for each test, so that nothing is remembered between them. */
async function freshHome(): Promise<{ HF_HOME: string }> {
  return { HF_HOME: await mkdtemp(join(root, 'home-')) };
}

/** A copy of a small model that a test may damage. */
async function copyModel(source = 'models/opt-books-draft'): Promise<string> {
  const folder = await mkdtemp(join(root, 'model-'));
  for (const name of await readdir(source)) await copyFile(join(source, name), join(folder, name));
  return folder;
}

async function storedBytesOf(prepared: PreparedModel, id: string): Promise<Buffer> {
  const { byteOffset, byteLength } = prepared.tensor(id);
  return (await readFile(prepared.weightsFile.path)).subarray(byteOffset, byteOffset + byteLength);
}

const models = [
  {
    folder: 'models/opt-books-target',
    files: ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'],
  },
  { folder: 'models/reglu-books', files: ['model.safetensors'] },
  { folder: 'test/fixtures/layouts/opt-bf16', files: ['model.safetensors'] },
  { folder: 'test/fixtures/layouts/opt-f32', files: ['model.safetensors'] },
  { folder: 'test/fixtures/layouts/opt-350m-style-post-norm-proj', files: ['model.safetensors'] },
  { folder: 'test/fixtures/layouts/llama-relu-mha-bias-untied', files: ['model.safetensors'] },
];

describe.each(models)('$folder', ({ folder, files }) => {
  // With small buffers the larger matrices take many bands, so that segments and read-back are exercised.
  test.each([undefined, folder.startsWith('models') ? 1 << 20 : 1 << 14])(
    'every tensor has the right bytes, buffers %s',
    async (bufferBytes) => {
      const environment = await freshHome();
      const { prepared, preparedNow } = await openOrPrepare(folder, { environment, bufferBytes });
      expect(preparedNow).toBe(true);
      const source = sourceTensors(folder, files);
      const { vectors, tables, matrices } = prepared.description;
      const weights = await readFile(prepared.weightsFile.path);
      const stored = (id: string) => {
        const { byteOffset, byteLength, sha256 } = prepared.tensor(id);
        expect(byteOffset % 4096).toBe(0);
        const bytes = weights.subarray(byteOffset, byteOffset + byteLength);
        expect(createHash('sha256').update(bytes).digest('hex')).toBe(sha256);
        return bytes;
      };
      for (const { id, inputs, outputs, layout, sourceTensor } of matrices) {
        const { bytes, shape } = source.get(sourceTensor)!;
        expect(shape).toEqual([outputs, inputs]);
        const size = bytes.length / (inputs * outputs);
        const wanted = layout === 'input-major' ? transposed(bytes, outputs, inputs, size) : bytes;
        expect(stored(id).equals(wanted), id).toBe(true);
        expect(prepared.tensor(id).shape).toEqual(
          layout === 'input-major' ? [inputs, outputs] : [outputs, inputs],
        );
      }
      for (const { id, sourceTensor } of tables)
        expect(stored(id).equals(source.get(sourceTensor)!.bytes), id).toBe(true);
      for (const { id, width, sourceTensor } of vectors) {
        expect(stored(id).length).toBe(4 * width);
        expect(prepared.tensor(id).type).toBe('f32');
        const { bytes, dtype } = source.get(sourceTensor)!;
        if (dtype === 'F32') expect(stored(id).equals(bytes), id).toBe(true);
        if (dtype === 'BF16') {
          for (let index = 0; index < width; index++) {
            expect(stored(id).readUInt32LE(4 * index)).toBe(bytes.readUInt16LE(2 * index) * 65536);
          }
        }
      }
      await prepared.close();
    },
  );
});

test('gated models keep "up" output-major, so that a stored row is a neuron', async () => {
  const { prepared } = await openOrPrepare('models/reglu-books', { environment: await freshHome() });
  const up = prepared.description.matrices.find(({ role }) => role === 'up')!;
  expect(prepared.tensor(up.id).shape).toEqual([up.outputs, up.inputs]);
  await prepared.close();
});

test('a tied head is a matrix of its own beside the token table', async () => {
  const { prepared } = await openOrPrepare('models/opt-books-draft', { environment: await freshHome() });
  const [vocabSize, width] = prepared.tensor('token-embedding').shape as [number, number];
  expect(prepared.tensor('head').shape).toEqual([width, vocabSize]);
  const table = await storedBytesOf(prepared, 'token-embedding');
  expect((await storedBytesOf(prepared, 'head')).equals(transposed(table, vocabSize, width, 2))).toBe(true);
  await prepared.close();
});

test('the second opening finds the first, and equal checkpoints give equal bytes', async () => {
  const environment = await freshHome();
  const first = await openOrPrepare('models/opt-books-draft', { environment });
  const second = await openOrPrepare('models/opt-books-draft', { environment, verify: true });
  expect([first.preparedNow, second.preparedNow]).toEqual([true, false]);
  expect(second.prepared.manifestDigest).toBe(first.prepared.manifestDigest);
  const elsewhere = await openOrPrepare(await copyModel(), {
    environment: await freshHome(),
    bufferBytes: 1 << 15,
  });
  expect(elsewhere.preparedNow).toBe(true);
  expect(elsewhere.prepared.manifestDigest).toBe(first.prepared.manifestDigest);
  expect(first.prepared.directory).toBe(join(environment.HF_HOME, 'waybill', first.prepared.sourceDigest));
  expect((await readdir(first.prepared.directory)).sort()).toEqual([
    'manifest.json',
    'manifest.sha256',
    'weights.bin',
  ]);
  expect((await readdir(join(environment.HF_HOME, 'waybill'))).sort()).toEqual(
    [first.prepared.sourceDigest, 'digests'].sort(),
  );
  for (const { prepared } of [first, second, elsewhere]) await prepared.close();
});

test('progress ends at the total, for hashing and for packing', async () => {
  const last = new Map<string, [number, number]>();
  const { prepared } = await openOrPrepare('models/opt-books-draft', {
    environment: await freshHome(),
    onProgress: (done, total, phase) => {
      expect(done).toBeGreaterThan(last.get(phase)?.[0] ?? 0);
      last.set(phase, [done, total]);
    },
  });
  await prepared.close();
  expect([...last.keys()]).toEqual(['hash', 'pack']);
  for (const [done, total] of last.values()) expect(done).toBe(total);
});

test('an aborted preparation leaves nothing behind', async () => {
  const directory = join(await mkdtemp(join(root, 'abort-')), 'prepared');
  const abort = new AbortController();
  const running = openOrPrepare('models/opt-books-draft', {
    environment: await freshHome(),
    directory,
    signal: abort.signal,
    onProgress: (_done, _total, phase) => {
      if (phase === 'pack') abort.abort();
    },
  });
  await expect(running).rejects.toMatchObject({ name: 'InterruptedError', code: 'interrupted' });
  expect(await readdir(join(directory, '..'))).toEqual([]);
});

describe('weights that are not finite', () => {
  test('are named by tensor and first place, and only their tensor is marked', async () => {
    const folder = await copyModel();
    const file = join(folder, 'model.safetensors');
    const bytes = await readFile(file);
    const headerEnd = 8 + Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, headerEnd).toString());
    const name = Object.keys(header).find((key) => key.includes('layers.1.') && key.endsWith('fc2.weight'))!;
    const [, columns] = header[name].shape as [number, number];
    const at = (row: number, column: number) =>
      headerEnd + header[name].data_offsets[0] + 2 * (row * columns + column);
    bytes.writeUInt16LE(0xfc00, at(3, 5)); // -Infinity
    bytes.writeUInt16LE(0x7e01, at(2, columns - 1)); // NaN
    await writeFile(file, bytes);
    for (const bufferBytes of [undefined, 1 << 15]) {
      const { prepared, notes } = await openOrPrepare(folder, {
        environment: await freshHome(),
        bufferBytes,
      });
      const tensor = prepared.tensor('layers.1.second');
      expect(tensor.finite).toBe(false);
      expect(tensor.nonFinite).toEqual({ count: 2, first: { row: 2, column: columns - 1, value: 'NaN' } });
      const { vectors, tables, matrices } = prepared.description;
      const marked = [...vectors, ...tables, ...matrices].filter(({ id }) => !prepared.tensor(id).finite);
      expect(marked.map(({ id }) => id)).toEqual(['layers.1.second']);
      expect(notes.filter((note) => note.includes(`"${name}"`) && note.includes('NaN'))).toHaveLength(1);
      await prepared.close();
    }
  });
});

describe('a changed source', () => {
  test('is prepared anew in the default place, with other digests', async () => {
    const folder = await copyModel();
    const environment = await freshHome();
    const first = await openOrPrepare(folder, { environment });
    const changed = await flipByte(join(folder, 'model.safetensors'), -1);
    const second = await openOrPrepare(folder, { environment });
    expect(second.preparedNow).toBe(true);
    expect(second.prepared.sourceDigest).not.toBe(first.prepared.sourceDigest);
    const listed = second.prepared.sourceFiles.find(({ name }) => name === 'model.safetensors')!;
    expect(listed.sha256).toBe(createHash('sha256').update(changed).digest('hex'));
    for (const { prepared } of [first, second]) await prepared.close();
  });

  test('is refused for a directory of the user, naming the file and both digests', async () => {
    const folder = await copyModel();
    const environment = await freshHome();
    const directory = join(environment.HF_HOME, 'mine');
    const before = createHash('sha256')
      .update(await readFile(join(folder, 'config.json')))
      .digest('hex');
    await (await openOrPrepare(folder, { environment, directory })).prepared.close();
    await writeFile(join(folder, 'config.json'), `${await readFile(join(folder, 'config.json'), 'utf8')}\n`);
    const after = createHash('sha256')
      .update(await readFile(join(folder, 'config.json')))
      .digest('hex');
    await expect(openOrPrepare(folder, { environment, directory })).rejects.toMatchObject({
      name: 'TamperedError',
      code: 'source-changed',
      data: { file: 'config.json', preparedSha256: before, currentSha256: after },
    });
  });

  test('with old time stamps is noticed all the same: the change time cannot be set back', async () => {
    const folder = await copyModel();
    const environment = await freshHome();
    const file = join(folder, 'model.safetensors');
    const old = new Date('2020-01-01T00:00:00Z');
    await utimes(file, old, old);
    const first = await openOrPrepare(folder, { environment });
    await flipByte(file, -1);
    await utimes(file, old, old);
    const second = await openOrPrepare(folder, { environment });
    expect(second.prepared.sourceDigest).not.toBe(first.prepared.sourceDigest);
    for (const { prepared } of [first, second]) await prepared.close();
  });
});

async function flipByte(path: string, position: number): Promise<Buffer> {
  const bytes = await readFile(path);
  const index = position < 0 ? bytes.length + position : position;
  bytes[index] = bytes[index]! ^ 1;
  await writeFile(path, bytes);
  return bytes;
}

describe('a damaged prepared directory', () => {
  async function preparedCopy(): Promise<string> {
    const directory = join(await mkdtemp(join(root, 'damage-')), 'prepared');
    const { prepared } = await openOrPrepare('models/opt-books-draft', {
      environment: await freshHome(),
      directory,
    });
    await prepared.close();
    return directory;
  }

  test('weights cut by one page: tensor and bytes are named', async () => {
    const directory = await preparedCopy();
    const path = join(directory, 'weights.bin');
    const bytes = await readFile(path);
    await writeFile(path, bytes.subarray(0, bytes.length - 4096));
    await expect(openPrepared(directory)).rejects.toMatchObject({
      name: 'TamperedError',
      code: 'weights-size',
      data: {
        actualBytes: String(bytes.length - 4096),
        wantedBytes: String(bytes.length),
        tensor: expect.any(String),
      },
    });
  });

  test('one flipped bit: found with verify, and named', async () => {
    const directory = await preparedCopy();
    const opened = await openPrepared(directory);
    const { byteOffset, byteLength } = opened.tensor('layers.0.first');
    await opened.close();
    await flipByte(join(directory, 'weights.bin'), byteOffset + byteLength - 1);
    await (await openPrepared(directory)).close();
    await expect(openPrepared(directory, { verify: true })).rejects.toMatchObject({
      name: 'TamperedError',
      code: 'tensor-digest',
      data: { tensor: 'layers.0.first', byteOffset: String(byteOffset), byteLength: String(byteLength) },
    });
  });

  test.each(['truncated', 'edited', 'emptied'])('%s manifest', async (damage) => {
    const directory = await preparedCopy();
    const path = join(directory, 'manifest.json');
    const text = await readFile(path, 'utf8');
    const damaged = {
      truncated: text.slice(0, -1),
      edited: text.replace('"finite":true', '"finite":false'),
      emptied: '',
    };
    expect(damaged[damage as keyof typeof damaged]).not.toBe(text);
    await writeFile(path, damaged[damage as keyof typeof damaged]);
    await expect(openPrepared(directory)).rejects.toMatchObject({
      name: 'TamperedError',
      code: 'manifest-digest',
    });
  });

  /** Sets a field by its path (undefined deletes it) and rewrites the digest to fit: only the content is wrong then. */
  async function editManifest(directory: string, field: string, value: unknown): Promise<void> {
    const path = join(directory, 'manifest.json');
    const manifest = JSON.parse(await readFile(path, 'utf8')) as object;
    const keys = field.split('.');
    const last = keys.pop()!;
    let holder: object = manifest;
    for (const key of keys) holder = Reflect.get(holder, key) as object;
    if (value === undefined) Reflect.deleteProperty(holder, last);
    else Reflect.set(holder, last, value);
    const text = JSON.stringify(manifest);
    await writeFile(path, text);
    const digest = createHash('sha256').update(text).digest('hex');
    await writeFile(join(directory, 'manifest.sha256'), `${digest}  manifest.json\n`);
  }

  test.each([
    ['another version', 'version', 2, 'prepared-version'],
    ['an unknown field', 'extra', 1, 'prepared-manifest'],
    ['a missing field', 'weights', undefined, 'prepared-manifest'],
    ['a number for a byte count', 'weights.byteLength', 4096, 'prepared-manifest'],
    ['an offset past 2^53', 'tensors.0.byteOffset', '9999999999999999', 'prepared-manifest'],
    ['an offset inside another tensor', 'tensors.1.byteOffset', '0', 'prepared-manifest'],
    ['a shape of other sizes', 'tensors.0.shape', [1], 'prepared-manifest'],
    ['fewer tensors than it describes', 'tensors', [], 'prepared-manifest'],
    ['a weights file elsewhere', 'weights.file', '../weights.bin', 'prepared-manifest'],
    ['an unknown activation', 'description.config.activation', 'swish', 'prepared-manifest'],
    ['a non-finite mark without a place', 'tensors.0.finite', false, 'prepared-manifest'],
  ])('manifest with %s', async (_name, field, value, code) => {
    const directory = await preparedCopy();
    await editManifest(directory, field, value);
    await expect(openPrepared(directory)).rejects.toMatchObject({ name: 'InputError', code });
  });

  test('missing files are named', async () => {
    const directory = await preparedCopy();
    await rm(join(directory, 'weights.bin'));
    await expect(openPrepared(directory)).rejects.toMatchObject({
      code: 'prepared-incomplete',
      data: { file: 'weights.bin' },
    });
    await expect(openPrepared(join(directory, 'none'))).rejects.toMatchObject({ code: 'prepared-missing' });
  });

  test('of another version is packed anew in the default place, refused elsewhere', async () => {
    const environment = await freshHome();
    const first = await openOrPrepare('models/opt-books-draft', { environment });
    await first.prepared.close();
    await editManifest(first.prepared.directory, 'version', 0);
    await expect(
      openOrPrepare('models/opt-books-draft', { environment, directory: first.prepared.directory }),
    ).rejects.toMatchObject({ code: 'prepared-version' });
    const again = await openOrPrepare('models/opt-books-draft', { environment });
    expect(again.preparedNow).toBe(true);
    expect(again.prepared.manifestDigest).toBe(first.prepared.manifestDigest);
    expect(await readdir(join(environment.HF_HOME, 'waybill'))).toHaveLength(2);
    await again.prepared.close();
  });
});

test('a folder that holds something else is left alone', async () => {
  const environment = await freshHome();
  const directory = join(environment.HF_HOME, 'mine');
  await mkdir(directory);
  await writeFile(join(directory, 'diary.txt'), 'dear');
  await expect(openOrPrepare('models/opt-books-draft', { environment, directory })).rejects.toMatchObject({
    name: 'SetupError',
    code: 'directory-in-use',
  });
  expect(await readdir(directory)).toEqual(['diary.txt']);
  expect((await readdir(environment.HF_HOME)).sort()).toEqual(['mine', 'waybill']);
});

test('an empty folder is filled', async () => {
  const environment = await freshHome();
  const directory = join(environment.HF_HOME, 'mine');
  await mkdir(directory);
  await (await openOrPrepare('models/opt-books-draft', { environment, directory })).prepared.close();
  expect((await stat(join(directory, 'weights.bin'))).size % 4096).toBe(0);
});
