import { InputError } from '../base/errors.js';
import type { JudgedArchive } from './lab-receipt.js';
import { armsTable } from './receipts-arms.js';
import { comparisonsOf } from './report/comparisons.js';
import { escapeMarkdown } from './report/markdown.js';

/** An audited archive of `receipts/`, by its file name. */
export interface ReceiptEntry {
  readonly file: string;
  readonly archive: JudgedArchive;
}

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

function entryOf(entries: readonly ReceiptEntry[], name: string): ReceiptEntry {
  const found = entries.find(({ archive }) => archive.run.part.protocol.protocol.name === name);
  if (found !== undefined) return found;
  throw new InputError(
    'receipt-missing',
    `Cannot show the arms of "${name}": no archive is of that protocol`,
  );
}

/** What each archive's gates came to, recomputed from its raw records. */
export function receiptsTable(entries: readonly ReceiptEntry[], folder: string): string {
  const head = [
    'protocol, archive',
    'verdict, gates that pass',
    'bytes, a share of',
    'time, paired ratio (interval) [the same of identical arms]',
  ];
  return tableOf(head, entries, ({ archive, file }) => {
    const open = archive.run.evaluation.gates.flatMap(({ name, verdict }) =>
      verdict === 'pass' ? [] : [`**${verdict}**: ${escapeMarkdown(name)}`],
    );
    return [
      linkOf(archive, folder, file),
      [verdictOf(archive), ...open].join('; '),
      sharesOf(archive).join('; '),
      effectsOf(archive).join('; '),
    ];
  });
}

/** The same without gates by name and without times. */
function verdictsTable(entries: readonly ReceiptEntry[], folder: string): string {
  const head = ['protocol, archive', 'verdict, gates that pass', 'bytes, a share of'];
  return tableOf(head, entries, ({ archive, file }) => [
    linkOf(archive, folder, file),
    verdictOf(archive),
    sharesOf(archive).join('; '),
  ]);
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

function linkOf({ run }: JudgedArchive, folder: string, file: string): string {
  return `[${run.part.protocol.protocol.name}](${folder}${file})`;
}

function verdictOf({ run }: JudgedArchive): string {
  const { gates, verdict } = run.evaluation;
  return `${verdict}, ${gates.filter((gate) => gate.verdict === 'pass').length} of ${gates.length}`;
}

/** Of each gate on a share. */
function sharesOf({ run }: JudgedArchive): string[] {
  const { gates } = run.part.protocol.protocol;
  return run.evaluation.gates.flatMap(({ check, figures }, index) => {
    const gate = gates[index]!;
    if (check !== 'share-at-most' || gate.check !== 'share-at-most') return [];
    const share = figures.share === undefined ? 'unmeasured' : Number(figures.share).toFixed(3);
    return [`${gate.metric} of ${pair(gate.arm, gate.of)}: ${share}`];
  });
}

/** Of each gate on a paired ratio. */
function effectsOf(archive: JudgedArchive): string[] {
  const gated = comparisonsOf(archive).filter(({ bound }) => bound !== null);
  return gated.map(({ arm, against, metric, effect, noise }) => {
    const { ratio, interval } = effect;
    const range =
      interval === null ? 'no interval' : `${interval.low.toFixed(3)} to ${interval.high.toFixed(3)}`;
    const floor = noise === null ? '' : ` [${noise.low.toFixed(3)} to ${noise.high.toFixed(3)}]`;
    return `${metric} of ${pair(arm, against)}: ${ratio?.toFixed(3) ?? 'none'} (${range})${floor}`;
  });
}

/** Arm names are words of letters, digits, "." and "-", as the schema has them. */
function pair(arm: string, against: string): string {
  return `\`${arm}\` / \`${against}\``;
}
