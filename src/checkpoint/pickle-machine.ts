import { InputError } from '../base/errors.js';
import { ByteCursor } from './byte-cursor.js';
import { PickleDict, PickleGlobal, PickleList, PickleTuple, type PickleValue } from './pickle-value.js';

/** Decides what a pickle may name, call and point to. Each method throws `InputError` to refuse. */
export interface PickleHost {
  global(module: string, name: string): PickleGlobal;
  call(callable: PickleGlobal, args: readonly PickleValue[]): PickleValue;
  persistent(id: PickleValue): PickleValue;
}

/** Stack entry below which a group begins. */
const mark = Symbol('mark');
type Entry = PickleValue | typeof mark;

/**
 * A tensor takes some 30 pushes, 10 memo entries and 6 containers, so these allow 10^5 tensors a file, and keep a pickle
 * of nothing but one-byte opcodes below a few hundred MB.
 */
const mostPushes = 4_000_000;
const mostMemo = 1_200_000;
const mostContainers = 700_000;

/** Stack and memo of an unpickler; opcodes are methods here, their bytes are in pickle.ts. */
export class PickleMachine {
  readonly cursor: ByteCursor;
  private readonly stack: Entry[] = [];
  private readonly memo = new Map<number, PickleValue>();
  private pushes = 0;
  private containers = 0;

  constructor(
    bytes: Uint8Array,
    private readonly file: string,
    private readonly host: PickleHost,
  ) {
    this.cursor = new ByteCursor(bytes, () => this.malformed('it ends inside an opcode'));
  }

  result(): PickleValue {
    const value = this.pop();
    if (this.stack.length > 0) throw this.malformed('it ends with values left over');
    return value;
  }

  protocol(version: number): void {
    if (version < 2 || version > 4) throw this.malformed(`its protocol is ${version}, wanted is 2 to 4`);
  }

  mark(): void {
    this.add(mark);
  }

  push(value: PickleValue): void {
    this.add(value);
  }

  tuple(items: readonly PickleValue[]): void {
    this.container(new PickleTuple(items));
  }

  list(): void {
    this.container(new PickleList());
  }

  dict(): void {
    this.container(new PickleDict());
  }

  append(values: readonly PickleValue[]): void {
    const list = this.top();
    if (!(list instanceof PickleList)) throw this.malformed('it appends to something that is no list');
    for (const value of values) list.items.push(value);
  }

  setItems(values: readonly PickleValue[]): void {
    const dict = this.top();
    if (!(dict instanceof PickleDict)) throw this.malformed('it sets items of something that is no dict');
    if (values.length % 2 !== 0) throw this.malformed('it sets an item without a value');
    for (let index = 0; index < values.length; index += 2)
      dict.entries.set(values[index]!, values[index + 1]!);
  }

  global(module: string, name: string): void {
    this.push(this.host.global(module, name));
  }

  stackGlobal(): void {
    const [module, name] = this.popMany(2);
    if (typeof module !== 'string' || typeof name !== 'string') {
      throw this.malformed('it names a global by something that is no string');
    }
    this.global(module, name);
  }

  reduce(): void {
    const [callable, args] = this.popMany(2);
    if (!(callable instanceof PickleGlobal) || !(args instanceof PickleTuple)) {
      throw this.malformed('it calls something that is no allowed name');
    }
    this.container(this.host.call(callable, args.items));
  }

  persistent(): void {
    this.container(this.host.persistent(this.pop()));
  }

  /** torch gives a state dict the attribute `_metadata`, which holds versions of modules: nothing to keep. */
  build(): void {
    const state = this.pop();
    if (!(this.top() instanceof PickleDict) || !(state instanceof PickleDict)) {
      throw this.malformed('it sets attributes of something that is no dict');
    }
  }

  long(byteLength: number): number | bigint {
    const bytes = this.cursor.take(byteLength);
    let value = 0n;
    for (let index = byteLength - 1; index >= 0; index--) value = (value << 8n) | BigInt(bytes[index]!);
    const signed = BigInt.asIntN(byteLength * 8, value);
    const exact = Number(signed);
    return Number.isSafeInteger(exact) ? exact : signed;
  }

  text(byteLength: number): string {
    const bytes = this.cursor.take(byteLength);
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw this.malformed('a string in it is not UTF-8');
    }
  }

  remember(index: number): void {
    if (this.memo.size >= mostMemo) throw this.tooLarge();
    this.memo.set(index, this.top());
  }

  memoize(): void {
    this.remember(this.memo.size);
  }

  recall(index: number): void {
    const value = this.memo.get(index);
    if (value === undefined) throw this.malformed(`it recalls the value ${index} that it never stored`);
    this.push(value);
  }

  pop(): PickleValue {
    const value = this.top();
    this.stack.pop();
    return value;
  }

  popMany(count: number): PickleValue[] {
    const values: PickleValue[] = [];
    for (let index = 0; index < count; index++) values.push(this.pop());
    return values.reverse();
  }

  popGroup(): PickleValue[] {
    const begin = this.stack.lastIndexOf(mark);
    if (begin < 0) throw this.malformed('its stack has no mark');
    return this.stack.splice(begin).slice(1) as PickleValue[];
  }

  unknown(opcode: number): InputError {
    const byteOffset = this.cursor.at - 1;
    return new InputError(
      'pickle-forbidden-opcode',
      `Reading the pickle of "${this.file}" failed at byte ${byteOffset}: opcode 0x${opcode.toString(16).padStart(2, '0')} is none that tensors need`,
      { file: this.file, opcode, byteOffset },
    );
  }

  private container(value: PickleValue): void {
    if (++this.containers > mostContainers) throw this.tooLarge();
    this.push(value);
  }

  private add(entry: Entry): void {
    if (++this.pushes > mostPushes) throw this.tooLarge();
    this.stack.push(entry);
  }

  private top(): PickleValue {
    const value = this.stack.at(-1);
    if (value === undefined || value === mark) throw this.malformed('its stack runs empty');
    return value;
  }

  private tooLarge(): InputError {
    return new InputError(
      'pickle-too-large',
      `Reading the pickle of "${this.file}" failed at byte ${this.cursor.at}: it makes more than ${mostPushes} values, ${mostMemo} of them to recall, or ${mostContainers} containers`,
      { file: this.file },
    );
  }

  private malformed(problem: string): InputError {
    return new InputError(
      'pickle-malformed',
      `Reading the pickle of "${this.file}" failed at byte ${this.cursor.at}: ${problem}`,
      { file: this.file, byteOffset: this.cursor.at },
    );
  }
}
