/** Reads numbers and byte runs in step, little-endian unless said; `atEnd` makes the error of a read past the end. */
export class ByteCursor {
  at = 0;
  private readonly view: DataView;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly atEnd: () => Error,
  ) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  u8(): number {
    return this.view.getUint8(this.advance(1));
  }

  u16(): number {
    return this.view.getUint16(this.advance(2), true);
  }

  u32(): number {
    return this.view.getUint32(this.advance(4), true);
  }

  i32(): number {
    return this.view.getInt32(this.advance(4), true);
  }

  /** Rounded to binary64: a length beyond 2^53 is past the end of any input all the same. */
  u64(): number {
    return Number(this.view.getBigUint64(this.advance(8), true));
  }

  f64BigEndian(): number {
    return this.view.getFloat64(this.advance(8), false);
  }

  /** A view of the next bytes, not a copy. */
  take(byteLength: number): Uint8Array {
    const begin = this.advance(byteLength);
    return this.bytes.subarray(begin, begin + byteLength);
  }

  /** Text up to a newline, each byte a character. */
  line(): string {
    const end = this.bytes.indexOf(0x0a, this.at);
    if (end < 0) throw this.atEnd();
    const text = Buffer.from(this.bytes.subarray(this.at, end)).toString('latin1');
    this.at = end + 1;
    return text;
  }

  private advance(byteLength: number): number {
    const begin = this.at;
    if (byteLength > this.bytes.byteLength - begin) throw this.atEnd();
    this.at = begin + byteLength;
    return begin;
  }
}
