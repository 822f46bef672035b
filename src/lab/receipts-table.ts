import type { JudgedArchive } from './lab-receipt.js';
import { comparisonsOf } from './report/comparisons.js';
import { escapeMarkdown } from './report/markdown.js';

/** An audited archive of `receipts/`, by its file name. */
export interface ReceiptEntry {
  readonly file: string;
  readonly archive: JudgedArchive;
}

/** The table of receipts/README.md: what each archive's gates came to, recomputed from its raw records. */
export function receiptsTable(entries: readonly ReceiptEntry[]): string {
  const rows = entries.map(({ file, archive }) => {
    const { gates, verdict } = archive.run.evaluation;
    const passed = gates.filter((gate) => gate.verdict === 'pass').length;
    const open = gates.flatMap(({ name, verdict: found }) => (found === 'pass' ? [] : [`${found}: ${name}`]));
    const cells = [
      `[${file}](${file})`,
      escapeMarkdown(verdict),
      `${passed} of ${gates.length}`,
      escapeMarkdown(open.join('; ') || 'none'),
      escapeMarkdown(effects(archive)),
    ];
    return `| ${cells.join(' | ')} |`;
  });
  const head = [
    'archive',
    'verdict',
    'gates that pass',
    'gates that do not',
    'paired ratio (interval), noise floor',
  ];
  return [`| ${head.join(' | ')} |`, `|${'---|'.repeat(head.length)}`, ...rows, ''].join('\n');
}

function effects(archive: JudgedArchive): string {
  const gated = comparisonsOf(archive).filter(({ bound }) => bound !== null);
  const texts = gated.map(({ arm, against, metric, effect, noise }) => {
    const { ratio, interval } = effect;
    const range =
      interval === null ? 'no interval' : `${interval.low.toFixed(3)} to ${interval.high.toFixed(3)}`;
    const floor = noise === null ? 'not measured' : `${noise.low.toFixed(3)} to ${noise.high.toFixed(3)}`;
    return `${metric}, ${arm} / ${against}: ${ratio?.toFixed(3) ?? 'none'} (${range}), ${floor}`;
  });
  return texts.join('; ') || 'none is gated';
}
