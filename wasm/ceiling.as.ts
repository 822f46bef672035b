import { scratch, takeTicket } from './control.as';
import { address } from './program.as';

const PIECE: usize = 1 << 20;

/**
 * Reads bytes (a multiple of 64) as fast as loads and one addition each go, with all threads: what the bench compares
 * products with. Words: address, count of bytes.
 */
export function readCeiling(op: usize, opIndex: i32): void {
  const from = address(op, 1);
  const bytes = address(op, 2);
  for (;;) {
    const begin = <usize>takeTicket(opIndex) * PIECE;
    if (begin >= bytes) return;
    // Stored, or a compiler could leave the loads out.
    v128.store(scratch(), sum(from + begin, min<usize>(PIECE, bytes - begin)));
  }
}

function sum(from: usize, bytes: usize): v128 {
  let a = i32x4.splat(0);
  let b = i32x4.splat(0);
  let c = i32x4.splat(0);
  let d = i32x4.splat(0);
  const end = from + bytes;
  for (let at = from; at < end; at += 64) {
    a = i32x4.add(a, v128.load(at));
    b = i32x4.add(b, v128.load(at, 16));
    c = i32x4.add(c, v128.load(at, 32));
    d = i32x4.add(d, v128.load(at, 48));
  }
  return i32x4.add(i32x4.add(a, b), i32x4.add(c, d));
}
