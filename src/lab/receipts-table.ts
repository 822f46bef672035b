import { InputError } from '../base/errors.js';
import type { LabPredicate } from './lab-predicate.js';
import { accountingOf, type JudgedArchive } from './lab-receipt.js';
import type { Protocol } from './protocol-schema.js';
import { armsTable } from './receipts-arms.js';
import { comparisonsOf } from './report/comparisons.js';
import { escapeMarkdown } from './report/markdown.js';

/** An audited archive of `receipts/`, by its file name. */
export interface ArchiveEntry {
  readonly file: string;
  readonly archive: JudgedArchive;
}

/** The verified receipt of an archive that is too large to lie there, and the protocol that it names. */
export interface LoneReceipt {
  readonly file: string;
  readonly receipt: Omit<LabPredicate, 'seal'>;
  readonly protocol: Protocol;
}

export type ReceiptEntry = ArchiveEntry | LoneReceipt;

/**
 * Between its two marks a document shows the table of all archives (`receipts`), the same in short (`verdicts`), or the
 * arms of one (`arms of NAME`).
 */
const places = /(<!-- (receipts|verdicts|arms of ([a-z0-9.-]+)) begin -->\n).*?(<!-- \2 end -->)/gs;

/**
 * A document with everything that it shows of archives made anew; `folder` leads from the document to the archives.
 * @throws InputError `receipt-missing` for the arms of an archive that is not there
 */
export function withReceipts(text: string, entries: readonly ReceiptEntry[], folder: string): string {
  return text.replace(places, (_, begin: string, what: string, name: string | undefined, end: string) => {
    if (name !== undefined) return `${begin}${armsTable(entryOf(entries, name), folder)}${end}`;
    return `${begin}${what === 'receipts' ? receiptsTable(entries, folder) : verdictsTable(entries, folder)}${end}`;
  });
}

function entryOf(entries: readonly ReceiptEntry[], name: string): ArchiveEntry {
  const found = entries.find(
    (entry): entry is ArchiveEntry =>
      'archive' in entry && entry.archive.run.part.protocol.protocol.name === name,
  );
  if (found !== undefined) return found;
  throw new InputError(
    'receipt-missing',
    `Cannot show the arms of "${name}": no archive is of that protocol`,
  );
}

/** What each archive's gates came to, recomputed from its raw records; of a lone receipt, what it says. */
export function receiptsTable(entries: readonly ReceiptEntry[], folder: string): string {
  const head = [
    'protocol, archive',
    'verdict, gates that pass',
    'bytes, a share of',
    'time, paired ratio (interval) [the same of identical arms]',
  ];
  return tableOf(head, entries, (entry) => {
    const facts = factsOf(entry);
    const open = facts.receipt.gates.flatMap(({ name, verdict }) =>
      verdict === 'pass' ? [] : [`**${verdict}**: ${escapeMarkdown(name)}`],
    );
    return [
      linkOf(entry, facts, folder),
      [verdictOf(facts), ...open].join('; '),
      sharesOf(facts).join('; '),
      effectsOf(entry, facts).join('; '),
    ];
  });
}

/** The same without gates by name and without times. */
function verdictsTable(entries: readonly ReceiptEntry[], folder: string): string {
  const head = ['protocol, archive', 'verdict, gates that pass', 'bytes, a share of'];
  return tableOf(head, entries, (entry) => {
    const facts = factsOf(entry);
    return [linkOf(entry, facts, folder), verdictOf(facts), sharesOf(facts).join('; ')];
  });
}

function tableOf(
  head: readonly string[],
  entries: readonly ReceiptEntry[],
  cellsOf: (entry: ReceiptEntry) => readonly string[],
): string {
  const row = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => (cell === '' ? '–' : cell)).join(' | ')} |`;
  return [
    row(head),
    `|${'---|'.repeat(head.length)}`,
    ...entries.map((entry) => row(cellsOf(entry))),
    '',
  ].join('\n');
}

type Facts = Omit<LoneReceipt, 'file'>;

/** Of an archive what its records come to, whatever its receipt says. */
function factsOf(entry: ReceiptEntry): Facts {
  if (!('archive' in entry)) return entry;
  return { receipt: accountingOf(entry.archive), protocol: entry.archive.run.part.protocol.protocol };
}

function linkOf(entry: ReceiptEntry, { protocol }: Facts, folder: string): string {
  const link = `[${protocol.name}](${folder}${entry.file})`;
  return 'archive' in entry ? link : `${link}, the receipt alone`;
}

function verdictOf({ receipt: { gates, run } }: Facts): string {
  return `${run.verdict}, ${gates.filter(({ verdict }) => verdict === 'pass').length} of ${gates.length}`;
}

/** Of each gate on a share. */
function sharesOf({ receipt, protocol }: Facts): string[] {
  return protocol.gates.flatMap((gate, index) => {
    if (gate.check !== 'share-at-most') return [];
    const share = receipt.gates[index]?.figures.share;
    return [
      `${gate.metric} of ${pair(gate.arm, gate.of)}: ${share === undefined ? 'unmeasured' : rounded(share)}`,
    ];
  });
}

/** Of each gate on a paired ratio. A receipt has the noise floor of each arm against the first alone. */
function effectsOf(entry: ReceiptEntry, { receipt, protocol }: Facts): string[] {
  const compared = 'archive' in entry ? comparisonsOf(entry.archive) : [];
  return protocol.gates.flatMap((gate, index) => {
    if (gate.check !== 'ratio-at-most') return [];
    const same = (other: { arm: string; against: string; metric: string }): boolean =>
      other.arm === gate.arm && other.against === gate.against && other.metric === gate.metric;
    const { ratio = null, interval = null } = receipt.gates[index]?.effect ?? {};
    const noise = compared.find(same)?.noise ?? receipt.noise?.floors.find(same)?.floor ?? null;
    const range = interval === null ? 'no interval' : `${rounded(interval.low)} to ${rounded(interval.high)}`;
    const floor = noise === null ? '' : ` [${rounded(noise.low)} to ${rounded(noise.high)}]`;
    const found = ratio === null ? 'none' : rounded(ratio);
    return [`${gate.metric} of ${pair(gate.arm, gate.against)}: ${found} (${range})${floor}`];
  });
}

function rounded(fraction: string | number): string {
  return Number(fraction).toFixed(3);
}

/** Arm names are words of letters, digits, "." and "-", as the schema has them. */
function pair(arm: string, against: string): string {
  return `\`${arm}\` / \`${against}\``;
}
