import { formatByteSize } from '../base/byte-size.js';
import type { JudgedArchive } from './lab-receipt.js';
import type { MetricName } from './metric-names.js';
import { trialMetric } from './metrics.js';
import type { TrialRecord } from './record-format.js';
import { escapeMarkdown } from './report/markdown.js';
import { nearestRank } from './statistics/percentile.js';

/**
 * The arms of one archive side by side, from its raw records: medians (nearest rank) over the measured trials, and the most
 * bytes held. A line below says of how many trials, and on what machine.
 */
export function armsTable(
  { file, archive }: { readonly file: string; readonly archive: JudgedArchive },
  folder: string,
): string {
  const { part, selection } = archive.run;
  const { protocol } = part.protocol;
  const trialsOf = (arm: string): TrialRecord[] =>
    selection.blocks.flatMap((block) => {
      const trial = block?.get(arm);
      return trial === undefined ? [] : [trial];
    });
  const base = median(trialsOf(protocol.arms[0]!.name), 'moved-bytes');
  const rows = protocol.arms.map(({ name, ...arm }) => {
    const trials = trialsOf(name);
    const moved = median(trials, 'moved-bytes');
    const firstNs = median(trials, 'time-to-first-token-ns');
    const held = largest(trials, 'peak-held-bytes');
    const cells = [
      `\`${name}\`${'budget' in arm && arm.budget === 'none' ? ', no budget' : ''}`,
      moved === null ? '–' : sizeText(moved),
      moved === null || base === null || base === 0n
        ? '–'
        : `${((100 * Number(moved)) / Number(base)).toFixed(1)} %`,
      rateText(trials),
      firstNs === null ? '–' : `${(Number(firstNs) / 1e6).toFixed(1)} ms`,
      held === null ? '–' : sizeText(held),
    ];
    return `| ${cells.join(' | ')} |`;
  });
  const head = [
    `arm of [${protocol.name}](${folder}${file})`,
    'weights moved',
    `of \`${protocol.arms[0]!.name}\``,
    'tokens/s',
    'first token',
    'most bytes held',
  ];
  const table = [`| ${head.join(' | ')} |`, `|${'---|'.repeat(head.length)}`, ...rows, ''];
  return `${table.join('\n')}\n${conditions(archive)}\n`;
}

function sizeText(bytes: bigint): string {
  return bytes === 0n ? '0' : formatByteSize(Number(bytes));
}

/** New tokens after the first of each request, a second of decoding. */
function rateText(trials: readonly TrialRecord[]): string {
  const rates = trials.flatMap((trial) => {
    const [ns, tokens] = [trialMetric(trial, 'decode-ns'), trialMetric(trial, 'new-tokens')];
    if (ns === null || tokens === null || ns === 0n) return [];
    return [(Number(tokens) - trial.requests.length) / (Number(ns) / 1e9)];
  });
  const sorted = rates.sort((a, b) => a - b);
  // The same rank as of integers: the smallest value that half of all do not exceed
  const middle = sorted[Math.ceil(sorted.length / 2) - 1];
  return middle === undefined ? '–' : middle.toFixed(0);
}

/** What stands in the records of the machine and the work. */
function conditions({ run }: JudgedArchive): string {
  const { manifest, records } = run.part;
  const trials = records.filter((record) => record.kind === 'trial' && record.slot.phase === 'measured');
  const measured = trials as TrialRecord[];
  const { platform, architecture, processor, processors } = manifest.environment;
  const loads = measured.map(({ machine }) => Number(machine.before.loadAverageThousandths) / 1000);
  const first = measured[0];
  const count = Math.max(
    0,
    ...run.part.protocol.protocol.arms.map(
      ({ name }) => measured.filter(({ slot }) => slot.arm === name).length,
    ),
  );
  const tokens = first?.requests.map(({ promptTokens, newTokens }) => `${promptTokens} + ${newTokens}`) ?? [];
  const facts = [
    `medians of ${count} interleaved trials of ${[...new Set(tokens)].join(', ')} tokens`,
    `${first?.arm.backend ?? 'command'}${first?.arm.kernels == null ? '' : ` (${first.arm.kernels})`}, threads: ${first?.arm.threads ?? 'unknown'}`,
    `${processors} processors (${processor}), ${platform} ${architecture}`,
    `load average ${Math.min(...loads).toFixed(1)} to ${Math.max(...loads).toFixed(1)}`,
  ];
  return escapeCaption(`${facts.join('; ')}.`);
}

/** A sentence of facts that a record may hold anything in. */
function escapeCaption(text: string): string {
  const escaped = escapeMarkdown(text).replace(/\\([-.+():])/g, '$1');
  return `${escaped[0]!.toUpperCase()}${escaped.slice(1)}`;
}

function median(trials: readonly TrialRecord[], metric: MetricName): bigint | null {
  const values = trials.map((trial) => trialMetric(trial, metric)).filter((value) => value !== null);
  return nearestRank(values, 50)?.value ?? null;
}

function largest(trials: readonly TrialRecord[], metric: MetricName): bigint | null {
  const values = trials.map((trial) => trialMetric(trial, metric)).filter((value) => value !== null);
  return values.reduce<bigint | null>((most, value) => (most === null || value > most ? value : most), null);
}
