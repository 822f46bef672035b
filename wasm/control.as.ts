// What the threads share to walk one program together. src/backend/cpu/wasm-layout.ts names the same bytes.

export const GENERATION: usize = 64; // of the barrier; counts up
const ARRIVED: usize = 68; // threads waiting at the barrier
const SLEEPERS: usize = 72; // of those, how many sleep
const FAILURE: usize = 76; // 0, or 4 * (1 + index of the first op that failed) + its code
const TICKETS: usize = 1024; // one u32 an op: the next piece of work not yet taken

/**
 * Loads of the generation before a thread goes to sleep. An op of a small layer takes a few microseconds, a sleep
 * and its wake-up tens; more than this steals the core from the thread that is waited for when cores are scarce.
 */
const SPINS: i32 = 4000;

let threadIndex: i32 = 0;
let threadCount: i32 = 1;
let threadScratch: usize = 0;

export function setThread(index: i32, count: i32, scratch: usize): void {
  threadIndex = index;
  threadCount = count;
  threadScratch = scratch;
}

// @ts-ignore: decorator
@inline
export function thread(): i32 {
  return threadIndex;
}

// @ts-ignore: decorator
@inline
export function threads(): i32 {
  return threadCount;
}

/** Bytes that belong to this thread alone; wasm-layout.ts states how many. */
// @ts-ignore: decorator
@inline
export function scratch(): usize {
  return threadScratch;
}

/** Returns once every thread has called it; what a thread stored before is seen by all after. */
export function barrier(): void {
  if (threadCount == 1) return;
  const generation = atomic.load<i32>(GENERATION);
  if (atomic.add<i32>(ARRIVED, 1) == threadCount - 1) {
    atomic.store<i32>(ARRIVED, 0);
    atomic.add<i32>(GENERATION, 1);
    if (atomic.load<i32>(SLEEPERS) != 0) atomic.notify(GENERATION, -1);
    return;
  }
  for (let spin = 0; spin < SPINS; spin++) {
    if (atomic.load<i32>(GENERATION) != generation) return;
  }
  atomic.add<i32>(SLEEPERS, 1);
  while (atomic.load<i32>(GENERATION) == generation) atomic.wait<i32>(GENERATION, generation, -1);
  atomic.sub<i32>(SLEEPERS, 1);
}

/** Takes the next piece of work of op `opIndex`; pieces are handed out ascending from 0. */
// @ts-ignore: decorator
@inline
export function takeTicket(opIndex: i32): i32 {
  return atomic.add<i32>(TICKETS + (<usize>opIndex << 2), 1);
}

/** A finite value does not fit the KV type. */
export const KV_OVERFLOW: i32 = 1;
/** A row index lies outside its table. */
export const INDEX_OUT_OF_RANGE: i32 = 2;

/** Records that op `opIndex` failed; the program ends once all threads are done with that op. */
export function fail(opIndex: i32, code: i32): void {
  atomic.cmpxchg<i32>(FAILURE, 0, 4 * (opIndex + 1) + code);
}

/**
 * True where an op up to `opIndex` failed. A thread ahead may already have failed in a later one; that must not end
 * the walk of a thread that the others will meet at that op's barrier.
 */
// @ts-ignore: decorator
@inline
export function failedBy(opIndex: i32): bool {
  const failure = atomic.load<i32>(FAILURE);
  return failure != 0 && (failure >> 2) - 1 <= opIndex;
}

/** First element of this thread's share of `count` elements, shares being multiples of `step`. */
// @ts-ignore: decorator
@inline
export function shareBegin(count: i32, step: i32): i32 {
  return shareBound(count, step, threadIndex);
}

/** One past the last element of this thread's share. */
// @ts-ignore: decorator
@inline
export function shareEnd(count: i32, step: i32): i32 {
  return shareBound(count, step, threadIndex + 1);
}

function shareBound(count: i32, step: i32, index: i32): i32 {
  const steps = <i64>((count + step - 1) / step);
  return min<i32>(count, <i32>((steps * <i64>index) / <i64>threadCount) * step);
}
