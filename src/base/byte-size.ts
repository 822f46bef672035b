import { UsageError } from './errors.js';

const unitBytes: Readonly<Record<string, bigint>> = {
  B: 1n,
  kB: 1000n,
  MB: 1000n ** 2n,
  GB: 1000n ** 3n,
  TB: 1000n ** 4n,
  KiB: 1024n,
  MiB: 1024n ** 2n,
  GiB: 1024n ** 3n,
  TiB: 1024n ** 4n,
};

const binaryUnits = ['TiB', 'GiB', 'MiB', 'KiB'] as const;

/**
 * Bytes of a size as a person writes it: `4800MiB`, `2GB`, `1.5GiB`, or a bare number of bytes. Decimal (kB, MB, GB,
 * TB) and binary units (KiB, MiB, GiB, TiB) are told apart by their spelling, which is case-sensitive. A fraction
 * needs a unit and must give a whole number of bytes; the arithmetic is on integers, so no size is rounded.
 * Throws `UsageError` `byte-size`. `subject` names what is being read in the message, for example `--budget`.
 */
export function parseByteSize(text: string, subject = 'a byte size'): number {
  const match = /^(\d+)(?:\.(\d+))?\s?([A-Za-z]*)$/.exec(text.trim());
  if (match === null) {
    throw refusal(
      text,
      subject,
      'expected a number with an optional unit, such as "4800MiB", "2GB" or "1048576"',
    );
  }
  const [, whole = '', fraction = '', unit = ''] = match;
  const factor = unit === '' ? 1n : Object.hasOwn(unitBytes, unit) ? unitBytes[unit] : undefined;
  if (factor === undefined) {
    throw refusal(text, subject, `the unit "${unit}" is none of ${Object.keys(unitBytes).join(', ')}`);
  }
  if (fraction !== '' && factor === 1n) {
    throw refusal(text, subject, 'a fraction needs a unit larger than a byte');
  }
  const scale = 10n ** BigInt(fraction.length);
  const scaled = BigInt(whole + fraction) * factor;
  if (scaled % scale !== 0n) throw refusal(text, subject, 'it is no whole number of bytes');
  const bytes = scaled / scale;
  if (bytes > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw refusal(
      text,
      subject,
      `${bytes} bytes is more than ${Number.MAX_SAFE_INTEGER}, the most that is counted`,
    );
  }
  return Number(bytes);
}

function refusal(text: string, subject: string, reason: string): UsageError {
  return new UsageError('byte-size', `Cannot read ${subject} from "${text}": ${reason}`, { text });
}

/**
 * A count of bytes for a person, in the largest binary unit that is not above it, to at most three decimals:
 * `4800 MiB` is printed as `4.688 GiB`. Where rounding changed it, the exact count is for the caller to print.
 */
export function formatByteSize(byteLength: number): string {
  for (const unit of binaryUnits) {
    const size = Number(unitBytes[unit]);
    if (Math.abs(byteLength) >= size) return `${Number((byteLength / size).toFixed(3))} ${unit}`;
  }
  return `${byteLength} B`;
}
