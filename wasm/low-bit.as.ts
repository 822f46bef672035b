// Certificates of inactivity (docs/certificates.md): inputs in 16 bits, whole-number products with a low-bit copy, bounds
// in binary64. Words [at, at + 19) of an op are the copy and where its rounded input lies; src/backend/program.ts.

import { scratch, shareBegin, shareEnd, takeTicket } from './control.as';
import { BLOCK, address, integer, scalar } from './program.as';
import { groupedProduct, plainProduct, unpackRow } from './whole-products.as';

const INPUTS: usize = 0;
const OUTPUTS: usize = 1;
const BITS: usize = 2;
const GROUPED: usize = 3;
const DIRECTIONS: usize = 4;
const DIRECTION_EXPONENT: usize = 5;
const RECORDS: usize = 6;
const RECORD_FLOATS: usize = 7;
const CODES: usize = 8;
const CODE_ROW_BYTES: usize = 9;
const HIGH: usize = 10;
const HIGH_ROW_BYTES: usize = 11;
const GROUP_SCALES: usize = 12;
const GROUP_ROW_BYTES: usize = 13;
const COMPONENTS: usize = 14;
const BASIS: usize = 15;
const SCALARS: usize = 16;
const ROUNDED: usize = 17;
const OF_DIRECTIONS: usize = 18;

const LARGEST_DIRECTIONS: f64 = 64;
const MOST_ROUNDED: f64 = 32767;
const TWO_M24: f64 = 5.9604644775390625e-8;
const TWO_M40: f64 = 9.094947017729282e-13;
const TWO_M52: f64 = 2.220446049250313e-16;

// @ts-ignore: decorator
@inline
function powerOfTwo(exponent: i32): f64 {
  return reinterpret<f64>(<u64>(exponent + 1023) << 52);
}

/** floor(log2 value), and -126 for what is smaller than 2^-126. */
function exponentOf(value: f64): i32 {
  return max<i32>(-126, <i32>(reinterpret<u64>(value) >> 52) - 1023);
}

// @ts-ignore: decorator
@inline
function roundedEven(value: f64): i16 {
  return <i16>(<i32>min<f64>(MOST_ROUNDED, max<f64>(-MOST_ROUNDED, nearest<f64>(value))));
}

// @ts-ignore: decorator
@inline
function paddedInputs(inputs: i32): i32 {
  return (inputs + 31) & ~31;
}

export function roundInput(op: usize, opIndex: i32): void {
  const rows = integer(op, 1);
  const x = address(op, 2);
  const copy = op + 3 * 8;
  const inputs = integer(copy, INPUTS);
  for (let t = takeTicket(opIndex); t < rows; t = takeTicket(opIndex)) {
    roundOneInput(copy, x + <usize>t * <usize>inputs * 4, t);
  }
}

function roundOneInput(copy: usize, x: usize, t: i32): void {
  const inputs = integer(copy, INPUTS);
  const padded = paddedInputs(inputs);
  const directions = integer(copy, DIRECTIONS);
  const scalars = address(copy, SCALARS) + (<usize>t << 6);
  const rounded = address(copy, ROUNDED) + <usize>t * <usize>padded * 2;
  const components = address(copy, OF_DIRECTIONS) + <usize>t * <usize>directions * 2;
  memory.fill(scalars, 0, 64);
  memory.fill(rounded, 0, <usize>padded << 1);
  memory.fill(components, 0, <usize>directions << 1);
  let largest: u32 = 0;
  for (let i: usize = 0; i < <usize>inputs << 2; i += 4) {
    largest = max<u32>(largest, load<u32>(x + i) & 0x7fffffff);
  }
  if (largest >= 0x7f800000) {
    store<f64>(scalars, Infinity, 56);
    return;
  }
  const exponent = exponentOf(<f64>reinterpret<f32>(largest)) - 14;
  const scale = powerOfTwo(exponent);
  const inverse = powerOfTwo(-exponent);
  let squares: i64 = 0;
  for (let i: usize = 0; i < <usize>inputs; i++) {
    const value = roundedEven(<f64>load<f32>(x + (i << 2)) * inverse);
    store<i16>(rounded + (i << 1), value);
    squares += <i64>value * <i64>value;
  }
  const inflation: f64 = 1 + <f64>(inputs + 4) * TWO_M52;
  const xNorm = sqrt<f64>(squaresOf(x, rounded, inputs, 0)) * inflation;
  const missedNorm = sqrt<f64>(squaresOf(x, rounded, inputs, scale)) * inflation;
  const terms = <f64>(BLOCK + (inputs + BLOCK - 1) / BLOCK + 2);
  const gamma = (terms * TWO_M24) / (1 - terms * TWO_M24);
  store<f64>(scalars, scale, 0);
  store<f64>(scalars, gamma * xNorm + missedNorm, 16);
  store<f64>(scalars, <f64>inputs * powerOfTwo(-149), 48);
  store<f64>(scalars, xNorm, 56);
  if (directions == 0) {
    store<f64>(scalars, sqrt<f64>(<f64>squares) * scale * inflation, 24);
    return;
  }
  takeComponents(copy, scalars, rounded, components, scale, inflation);
}

/** Sum of (x - scale * rounded)^2 by the block rule in binary64. */
function squaresOf(x: usize, rounded: usize, inputs: i32, scale: f64): f64 {
  let y: f64 = 0;
  for (let block = 0; block < inputs; block += BLOCK) {
    const end = min<i32>(block + BLOCK, inputs);
    let acc: f64 = 0;
    for (let i: usize = block; i < <usize>end; i++) {
      const value = <f64>load<f32>(x + (i << 2)) - <f64>load<i16>(rounded + (i << 1)) * scale;
      acc = acc + value * value;
    }
    y = y + acc;
  }
  return y;
}

function takeComponents(
  copy: usize,
  scalars: usize,
  rounded: usize,
  components: usize,
  scale: f64,
  inflation: f64,
): void {
  const inputs = integer(copy, INPUTS);
  const rowBytes = <usize>paddedInputs(inputs) << 1;
  const directions = <usize>integer(copy, DIRECTIONS);
  const directionExponent = integer(copy, DIRECTION_EXPONENT);
  const basis = address(copy, BASIS);
  const exact = scratch(); // F64 [r]
  const inside = scratch() + 512; // F64 [128]
  let largest: f64 = 0;
  for (let j: usize = 0; j < directions; j++) {
    const direction = basis + j * rowBytes;
    let sum: i64 = 0;
    for (let i: usize = 0; i < rowBytes; i += 2) {
      sum += <i64>(<i32>load<i16>(direction + i) * <i32>load<i16>(rounded + i));
    }
    store<f64>(exact + (j << 3), <f64>sum);
    largest = max<f64>(largest, abs<f64>(<f64>sum));
  }
  const bits = max<i32>(0, exponentOf(largest) - 14);
  const shift = powerOfTwo(bits);
  const back = powerOfTwo(-bits);
  const unit = scale * powerOfTwo(-directionExponent);
  let squares: f64 = 0;
  let missedSquares: f64 = 0;
  for (let j: usize = 0; j < directions; j++) {
    const whole = load<f64>(exact + (j << 3));
    const rounding = roundedEven(whole * back);
    store<i16>(components + (j << 1), rounding);
    const value = <f64>rounding;
    const rest = whole - value * shift;
    squares += value * value;
    missedSquares = missedSquares + rest * rest;
  }
  const inflationOfComponents: f64 = 1 + (LARGEST_DIRECTIONS + 4) * TWO_M52;
  const componentScale = unit * shift;
  store<f64>(scalars, componentScale, 8);
  store<f64>(scalars, sqrt<f64>(squares) * componentScale * inflationOfComponents, 32);
  store<f64>(scalars, sqrt<f64>(missedSquares) * unit * inflationOfComponents, 40);
  const two = powerOfTwo(2 * directionExponent);
  let y: f64 = 0;
  for (let block = 0; block < inputs; block += BLOCK) {
    const count = <usize>min<i32>(BLOCK, inputs - block);
    memory.fill(inside, 0, BLOCK * 8);
    for (let j: usize = 0; j < directions; j++) {
      const direction = basis + j * rowBytes + (<usize>block << 1);
      const component = <f64>load<i16>(components + (j << 1));
      for (let i: usize = 0; i < count; i++) {
        const at = inside + (i << 3);
        store<f64>(at, load<f64>(at) + <f64>load<i16>(direction + (i << 1)) * component);
      }
    }
    let acc: f64 = 0;
    for (let i: usize = 0; i < count; i++) {
      const value = <f64>load<i16>(rounded + ((<usize>block + i) << 1));
      const outside = value * two - load<f64>(inside + (i << 3)) * shift;
      acc = acc + outside * outside;
    }
    y = y + acc;
  }
  store<f64>(scalars, sqrt<f64>(y) * (unit * powerOfTwo(-directionExponent)) * inflation, 24);
}

/** Neurons of one share step: no two threads store into one cache line. */
const STEP: i32 = 16;

export function certify(op: usize): void {
  const rows = integer(op, 1);
  const copy = op + 2 * 8;
  const bias = address(op, 21);
  const threshold = <f64>scalar(op, 22);
  const out = address(op, 23);
  const inputs = integer(copy, INPUTS);
  const outputs = integer(copy, OUTPUTS);
  const padded = <usize>paddedInputs(inputs);
  const bits = integer(copy, BITS);
  const grouped = integer(copy, GROUPED) != 0;
  const rounded = address(copy, ROUNDED);
  const codeRowBytes = address(copy, CODE_ROW_BYTES);
  const end = shareEnd(outputs, STEP);
  for (let n = shareBegin(outputs, STEP); n < end; n++) {
    const neuron = <usize>n;
    let codes = address(copy, CODES) + neuron * codeRowBytes;
    if (bits != 8) {
      unpackRow(bits, codes, address(copy, HIGH) + neuron * address(copy, HIGH_ROW_BYTES), scratch(), padded);
      codes = scratch();
    }
    const scales = address(copy, GROUP_SCALES) + neuron * address(copy, GROUP_ROW_BYTES);
    const offset: f64 = bias == 0 ? 0 : <f64>load<f32>(bias + (neuron << 2));
    for (let t = 0; t < rows; t++) {
      const x = rounded + (<usize>t * padded << 1);
      const product = grouped ? groupedProduct(codes, scales, x, padded) : plainProduct(codes, x, padded);
      const inactive = isInactive(copy, t, neuron, <f64>product, offset, threshold);
      store<f32>(out + ((<usize>t * <usize>outputs + neuron) << 2), inactive ? 0 : 1);
    }
  }
}

function isInactive(copy: usize, t: i32, neuron: usize, product: f64, bias: f64, threshold: f64): bool {
  const scalars = address(copy, SCALARS) + (<usize>t << 6);
  const record = address(copy, RECORDS) + ((neuron * address(copy, RECORD_FLOATS)) << 2);
  const weights = <f64>load<f32>(record, 4);
  const s = load<f64>(scalars) * <f64>load<f32>(record) * product;
  let margin =
    load<f64>(scalars, 48) + load<f64>(scalars, 16) * weights + load<f64>(scalars, 24) * <f64>load<f32>(record, 8);
  let along: f64 = 0;
  const directions = address(copy, DIRECTIONS);
  if (directions != 0) {
    const components = address(copy, COMPONENTS) + neuron * directions;
    const ofInput = address(copy, OF_DIRECTIONS) + (<usize>t * directions << 1);
    let inside: i32 = 0;
    for (let j: usize = 0; j < directions; j++) {
      inside += <i32>load<i8>(components + j) * <i32>load<i16>(ofInput + (j << 1));
    }
    along = load<f64>(scalars, 8) * <f64>load<f32>(record, 12) * <f64>inside;
    margin =
      margin + load<f64>(scalars, 32) * <f64>load<f32>(record, 16) + load<f64>(scalars, 40) * <f64>load<f32>(record, 20);
  }
  const magnitude = abs<f64>(s) + abs<f64>(along) + abs<f64>(bias) + margin;
  const bound = s + along + bias + margin + TWO_M40 * magnitude;
  return load<f64>(scalars, 56) * weights < powerOfTwo(126) && bound < threshold;
}
