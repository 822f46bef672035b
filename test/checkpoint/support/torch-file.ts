import { crc32 } from 'node:zlib';

/** A zip archive of stored entries. `padding` goes into each local header's extra field, as torch aligns data. */
export function zipFile(
  entries: readonly { name: string; data: Uint8Array; method?: number; flags?: number }[],
  options: { zip64?: boolean; padding?: number } = {},
): Buffer {
  const locals: Buffer[] = [];
  const centrals: Buffer[] = [];
  let at = 0;
  for (const { name, data, method = 0, flags = 0 } of entries) {
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(options.zip64 ? 45 : 20, 0);
    fields.writeUInt16LE(flags, 2);
    fields.writeUInt16LE(method, 4);
    fields.writeUInt32LE(crc32(data), 10);
    fields.writeUInt32LE(options.zip64 ? 0xffffffff : data.byteLength, 14);
    fields.writeUInt32LE(options.zip64 ? 0xffffffff : data.byteLength, 18);
    fields.writeUInt16LE(Buffer.byteLength(name), 22);
    const sizes = options.zip64 ? zip64Extra([data.byteLength, data.byteLength]) : Buffer.alloc(0);
    const extra = Buffer.concat([sizes, paddingExtra(options.padding ?? 0)]);
    fields.writeUInt16LE(extra.byteLength, 24);
    const local = Buffer.concat([signature(0x04034b50), fields, Buffer.from(name), extra, data]);
    const centralExtra = options.zip64 ? zip64Extra([data.byteLength, data.byteLength, at]) : Buffer.alloc(0);
    fields.writeUInt16LE(centralExtra.byteLength, 24);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(options.zip64 ? 0xffffffff : at, 10);
    centrals.push(
      Buffer.concat([
        signature(0x02014b50),
        Buffer.from([20, 0]),
        fields,
        tail,
        Buffer.from(name),
        centralExtra,
      ]),
    );
    locals.push(local);
    at += local.byteLength;
  }
  const central = Buffer.concat(centrals);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(options.zip64 ? 0xffff : entries.length, 4);
  end.writeUInt16LE(options.zip64 ? 0xffff : entries.length, 6);
  end.writeUInt32LE(options.zip64 ? 0xffffffff : central.byteLength, 8);
  end.writeUInt32LE(options.zip64 ? 0xffffffff : at, 12);
  const end64 = options.zip64 ? zip64End(entries.length, central.byteLength, at) : Buffer.alloc(0);
  return Buffer.concat([...locals, central, end64, signature(0x06054b50), end]);
}

function signature(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function zip64Extra(values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 + 8 * values.length);
  bytes.writeUInt16LE(1, 0);
  bytes.writeUInt16LE(8 * values.length, 2);
  values.forEach((value, index) => {
    bytes.writeBigUInt64LE(BigInt(value), 4 + 8 * index);
  });
  return bytes;
}

function paddingExtra(length: number): Buffer {
  if (length === 0) return Buffer.alloc(0);
  const bytes = Buffer.alloc(4 + length, 0x5a);
  bytes.write('FB');
  bytes.writeUInt16LE(length, 2);
  return bytes;
}

function zip64End(count: number, centralBytes: number, centralOffset: number): Buffer {
  const record = Buffer.alloc(56);
  record.writeUInt32LE(0x06064b50, 0);
  record.writeBigUInt64LE(44n, 4);
  record.writeUInt16LE(45, 12);
  record.writeUInt16LE(45, 14);
  record.writeBigUInt64LE(BigInt(count), 24);
  record.writeBigUInt64LE(BigInt(count), 32);
  record.writeBigUInt64LE(BigInt(centralBytes), 40);
  record.writeBigUInt64LE(BigInt(centralOffset), 48);
  const locator = Buffer.alloc(20);
  locator.writeUInt32LE(0x07064b50, 0);
  locator.writeBigUInt64LE(BigInt(centralOffset + centralBytes), 8);
  locator.writeUInt32LE(1, 16);
  return Buffer.concat([record, locator]);
}

/** Pickle opcodes by name, enough to write what torch.save writes, and what it does not. */
export const op = {
  proto: (version: number) => Buffer.from([0x80, version]),
  stop: Buffer.from('.'),
  mark: Buffer.from('('),
  tuple: Buffer.from('t'),
  emptyTuple: Buffer.from(')'),
  emptyDict: Buffer.from('}'),
  emptyList: Buffer.from(']'),
  setItems: Buffer.from('u'),
  setItem: Buffer.from('s'),
  reduce: Buffer.from('R'),
  build: Buffer.from('b'),
  persistent: Buffer.from('Q'),
  none: Buffer.from('N'),
  false: Buffer.from([0x89]),
  global: (module: string, name: string) => Buffer.from(`c${module}\n${name}\n`),
  text(value: string): Buffer {
    const bytes = Buffer.from(value);
    const head = Buffer.from([0x58, 0, 0, 0, 0]);
    head.writeUInt32LE(bytes.byteLength, 1);
    return Buffer.concat([head, bytes]);
  },
  int(value: number): Buffer {
    const bytes = Buffer.alloc(10);
    bytes[0] = 0x8a;
    bytes[1] = 8;
    bytes.writeBigInt64LE(BigInt(value), 2);
    return bytes;
  },
  group: (...parts: Buffer[]) => Buffer.concat([op.mark, ...parts, op.tuple]),
  call: (callable: Buffer, ...args: Buffer[]) => Buffer.concat([callable, op.group(...args), op.reduce]),
};

export const orderedDict = Buffer.concat([op.global('collections', 'OrderedDict'), op.emptyTuple, op.reduce]);

export interface TorchTensorSource {
  readonly storageClass?: string;
  readonly key: string;
  readonly elements: number;
  readonly offset?: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly parameter?: boolean;
}

/** The opcodes that leave this tensor on the stack. */
export function tensorPickle(tensor: TorchTensorSource): Buffer {
  const storage = Buffer.concat([
    op.group(
      op.text('storage'),
      op.global('torch', tensor.storageClass ?? 'HalfStorage'),
      op.text(tensor.key),
      op.text('cpu'),
      op.int(tensor.elements),
    ),
    op.persistent,
  ]);
  const rebuilt = op.call(
    op.global('torch._utils', '_rebuild_tensor_v2'),
    storage,
    op.int(tensor.offset ?? 0),
    op.group(...tensor.shape.map(op.int)),
    op.group(...tensor.strides.map(op.int)),
    op.false,
    orderedDict,
  );
  return tensor.parameter
    ? op.call(op.global('torch._utils', '_rebuild_parameter'), rebuilt, op.false, orderedDict)
    : rebuilt;
}

/** A state dict's pickle. */
export function statePickle(tensors: Readonly<Record<string, Buffer>>, protocol = 2): Buffer {
  const items = Object.entries(tensors).flatMap(([name, value]) => [op.text(name), value]);
  return Buffer.concat([op.proto(protocol), orderedDict, op.mark, ...items, op.setItems, op.stop]);
}

/** A `.bin` file of a pickle and its storages. */
export function torchFile(
  pickle: Buffer,
  storages: Readonly<Record<string, Uint8Array>>,
  options: { zip64?: boolean; padding?: number; byteOrder?: string } = {},
): Buffer {
  return zipFile(
    [
      { name: 'archive/data.pkl', data: pickle },
      { name: 'archive/byteorder', data: Buffer.from(options.byteOrder ?? 'little') },
      ...Object.entries(storages).map(([key, data]) => ({ name: `archive/data/${key}`, data })),
      { name: 'archive/version', data: Buffer.from('3\n') },
    ],
    options,
  );
}
