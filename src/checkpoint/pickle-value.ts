/**
 * What a restricted unpickler can make: plain data, and opaque values that its host made. Containers are classes of our
 * own, so that nothing of a pickle becomes a property of a JavaScript object.
 */
export type PickleValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | PickleTuple
  | PickleList
  | PickleDict
  | PickleGlobal
  | PickleOpaque;

export class PickleTuple {
  constructor(readonly items: readonly PickleValue[]) {}
}

export class PickleList {
  readonly items: PickleValue[] = [];
}

/** dict and OrderedDict; attributes that BUILD sets are dropped. */
export class PickleDict {
  readonly entries = new Map<PickleValue, PickleValue>();
}

/** A name that the host allows; loading it ran nothing. */
export class PickleGlobal {
  constructor(
    readonly module: string,
    readonly name: string,
  ) {}
}

/** A value of the host: a storage or a tensor. */
export abstract class PickleOpaque {
  abstract readonly kind: string;
}
