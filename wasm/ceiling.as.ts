/** Reads `bytes` (a multiple of 64) as fast as loads and one addition each go: the bench's read ceiling. */
export function readCeiling(from: usize, bytes: usize): f32 {
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
  return <f32>i32x4.extract_lane(i32x4.add(i32x4.add(a, b), i32x4.add(c, d)), 0);
}
