import { type PickleHost, PickleMachine } from './pickle-machine.js';
import type { PickleValue } from './pickle-value.js';

type Opcode = (machine: PickleMachine) => void;

/** The opcodes of pickle protocols 2 to 4 that data needs, by byte (CPython `Lib/pickletools.py`). */
const opcodes: ReadonlyMap<number, Opcode> = new Map<number, Opcode>([
  [0x80, (m) => m.protocol(m.cursor.u8())], // PROTO
  [0x95, (m) => void m.cursor.u64()], // FRAME
  [0x28, (m) => m.mark()], // MARK
  [0x30, (m) => void m.pop()], // POP
  [0x31, (m) => void m.popGroup()], // POP_MARK
  [0x4e, (m) => m.push(null)], // NONE
  [0x88, (m) => m.push(true)], // NEWTRUE
  [0x89, (m) => m.push(false)], // NEWFALSE
  [0x4a, (m) => m.push(m.cursor.i32())], // BININT
  [0x4b, (m) => m.push(m.cursor.u8())], // BININT1
  [0x4d, (m) => m.push(m.cursor.u16())], // BININT2
  [0x8a, (m) => m.push(m.long(m.cursor.u8()))], // LONG1
  [0x47, (m) => m.push(m.cursor.f64BigEndian())], // BINFLOAT
  [0x58, (m) => m.push(m.text(m.cursor.u32()))], // BINUNICODE
  [0x8c, (m) => m.push(m.text(m.cursor.u8()))], // SHORT_BINUNICODE
  [0x8d, (m) => m.push(m.text(m.cursor.u64()))], // BINUNICODE8
  [0x54, (m) => m.push(m.text(m.cursor.u32()))], // BINSTRING
  [0x55, (m) => m.push(m.text(m.cursor.u8()))], // SHORT_BINSTRING
  [0x42, (m) => m.push(m.cursor.take(m.cursor.u32()))], // BINBYTES
  [0x43, (m) => m.push(m.cursor.take(m.cursor.u8()))], // SHORT_BINBYTES
  [0x29, (m) => m.tuple([])], // EMPTY_TUPLE
  [0x85, (m) => m.tuple(m.popMany(1))], // TUPLE1
  [0x86, (m) => m.tuple(m.popMany(2))], // TUPLE2
  [0x87, (m) => m.tuple(m.popMany(3))], // TUPLE3
  [0x74, (m) => m.tuple(m.popGroup())], // TUPLE
  [0x5d, (m) => m.list()], // EMPTY_LIST
  [0x61, (m) => m.append([m.pop()])], // APPEND
  [0x65, (m) => m.append(m.popGroup())], // APPENDS
  [0x7d, (m) => m.dict()], // EMPTY_DICT
  [0x73, (m) => m.setItems(m.popMany(2))], // SETITEM
  [0x75, (m) => m.setItems(m.popGroup())], // SETITEMS
  [0x71, (m) => m.remember(m.cursor.u8())], // BINPUT
  [0x72, (m) => m.remember(m.cursor.u32())], // LONG_BINPUT
  [0x94, (m) => m.memoize()], // MEMOIZE
  [0x68, (m) => m.recall(m.cursor.u8())], // BINGET
  [0x6a, (m) => m.recall(m.cursor.u32())], // LONG_BINGET
  [0x63, (m) => m.global(m.cursor.line(), m.cursor.line())], // GLOBAL
  [0x93, (m) => m.stackGlobal()], // STACK_GLOBAL
  [0x52, (m) => m.reduce()], // REDUCE
  [0x62, (m) => m.build()], // BUILD
  [0x51, (m) => m.persistent()], // BINPERSID
]);

const stop = 0x2e;

/**
 * Runs a pickle with the opcodes above and no others: no imports, no instances, no calls beyond `host.call`. Work and
 * memory are linear in the input and capped: no opcode copies a value. Throws `InputError`: `pickle-forbidden-opcode`,
 * `pickle-malformed`, `pickle-too-large`, and what the host refuses.
 */
export function unpickle(bytes: Uint8Array, file: string, host: PickleHost): PickleValue {
  const machine = new PickleMachine(bytes, file, host);
  for (;;) {
    const byte = machine.cursor.u8();
    if (byte === stop) return machine.result();
    const run = opcodes.get(byte);
    if (run === undefined) throw machine.unknown(byte);
    run(machine);
  }
}
