import { InputError } from '../base/errors.js';
import type { StoredType } from '../base/stored-type.js';
import type { PickleHost } from './pickle-machine.js';
import {
  PickleDict,
  PickleGlobal,
  PickleList,
  PickleOpaque,
  PickleTuple,
  type PickleValue,
} from './pickle-value.js';

/** Storage classes that a tensor may name, with bytes an element and the type that Waybill computes with. */
const storageClasses: Readonly<Record<string, { bytes: number; type: StoredType | null }>> = {
  FloatStorage: { bytes: 4, type: 'f32' },
  HalfStorage: { bytes: 2, type: 'f16' },
  BFloat16Storage: { bytes: 2, type: 'bf16' },
  DoubleStorage: { bytes: 8, type: null },
  LongStorage: { bytes: 8, type: null },
  IntStorage: { bytes: 4, type: null },
  ShortStorage: { bytes: 2, type: null },
  CharStorage: { bytes: 1, type: null },
  ByteStorage: { bytes: 1, type: null },
  BoolStorage: { bytes: 1, type: null },
};

/** A storage of the archive, `data/<key>`. */
export class TorchStorage extends PickleOpaque {
  readonly kind = 'storage';

  constructor(
    readonly key: string,
    readonly className: string,
    readonly elements: number,
    readonly elementBytes: number,
    readonly type: StoredType | null,
  ) {
    super();
  }
}

/** A view of a storage; offset, sizes and strides in elements. */
export class TorchTensor extends PickleOpaque {
  readonly kind = 'tensor';

  constructor(
    readonly storage: TorchStorage,
    readonly offset: number,
    readonly shape: readonly number[],
    readonly strides: readonly number[],
  ) {
    super();
  }
}

/** torch's own limit on dimensions (c10 `kMaxDim`). */
const mostDimensions = 64;

/**
 * Allows what a state dict of tensors needs and refuses every other name as `pickle-forbidden-global`: nothing is
 * imported or run, a call makes a record of its arguments.
 */
export function torchHost(file: string): PickleHost {
  const malformed = (problem: string) =>
    new InputError('torch-malformed', `Reading the pickle of "${file}" failed: ${problem}`, { file });
  return {
    global(module, name) {
      const path = `${module}.${name}`;
      const isStorage = module === 'torch' && Object.hasOwn(storageClasses, name);
      if (isStorage || callables.has(path)) return new PickleGlobal(module, name);
      throw new InputError(
        'pickle-forbidden-global',
        `Reading the pickle of "${file}" failed: it names ${JSON.stringify(path.slice(0, 200))}, which tensors do not need; nothing of it was run`,
        { file, global: path.slice(0, 1000) },
      );
    },
    call(callable, args) {
      const call = callables.get(`${callable.module}.${callable.name}`);
      if (call === undefined) throw malformed(`it calls the class "${callable.name}"`);
      return call(args, malformed);
    },
    persistent: (id) => readStorage(id, malformed),
  };
}

type Malformed = (problem: string) => InputError;
type Call = (args: readonly PickleValue[], malformed: Malformed) => PickleValue;

const callables: ReadonlyMap<string, Call> = new Map<string, Call>([
  ['collections.OrderedDict', orderedDict],
  ['torch._utils._rebuild_tensor_v2', rebuildTensor],
  ['torch._utils._rebuild_parameter', rebuildParameter],
]);

/** Python 2 wrote the items as an argument. */
function orderedDict(args: readonly PickleValue[], malformed: Malformed): PickleValue {
  const dict = new PickleDict();
  const [items] = args;
  if (args.length > 1 || (items !== undefined && !(items instanceof PickleList))) {
    throw malformed('it makes an OrderedDict of something that is no list');
  }
  for (const item of items?.items ?? []) {
    const pair = item instanceof PickleTuple || item instanceof PickleList ? item.items : [];
    if (pair.length !== 2) throw malformed('it makes an OrderedDict of something that is no list of pairs');
    dict.entries.set(pair[0]!, pair[1]!);
  }
  return dict;
}

/** (storage, storage offset, sizes, strides, requires_grad, backward hooks[, metadata]) */
function rebuildTensor(args: readonly PickleValue[], malformed: Malformed): PickleValue {
  const [storage, offset, shape, strides] = args;
  if (args.length < 6 || args.length > 7 || !(storage instanceof TorchStorage)) {
    throw malformed('it rebuilds a tensor from other arguments than a storage, an offset, sizes and strides');
  }
  if (!isCount(offset)) throw malformed('a tensor has a storage offset that is no whole number below 2^53');
  const sizes = counts(shape);
  const steps = counts(strides);
  if (sizes === null || steps === null || sizes.length !== steps.length) {
    throw malformed(`a tensor has no sizes and strides of equal length, at most ${mostDimensions}`);
  }
  return new TorchTensor(storage, offset, sizes, steps);
}

/** (tensor, requires_grad, backward hooks) */
function rebuildParameter(args: readonly PickleValue[], malformed: Malformed): PickleValue {
  const [tensor] = args;
  if (args.length !== 3 || !(tensor instanceof TorchTensor)) {
    throw malformed('it rebuilds a parameter from something that is no tensor');
  }
  return tensor;
}

/** ('storage', class, key, location, elements) */
function readStorage(id: PickleValue, malformed: Malformed): TorchStorage {
  const [tag, storageClass, key, , elements] = id instanceof PickleTuple ? id.items : [];
  const known = storageClass instanceof PickleGlobal ? storageClasses[storageClass.name] : undefined;
  if (tag !== 'storage' || known === undefined || typeof key !== 'string' || !isCount(elements)) {
    throw malformed('it points to something that is no storage');
  }
  const { name } = storageClass as PickleGlobal;
  return new TorchStorage(key, name, elements, known.bytes, known.type);
}

function counts(value: PickleValue | undefined): number[] | null {
  if (!(value instanceof PickleTuple) || value.items.length > mostDimensions) return null;
  return value.items.every(isCount) ? (value.items as number[]) : null;
}

function isCount(value: PickleValue | undefined): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
