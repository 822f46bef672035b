import { basename } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { exitCodes, TamperedError } from '../base/errors.js';
import { type ArchiveDiff, diffArchives, type GateDiff, type MetricDiff } from '../lab/archive-diff.js';
import { readArchiveFile } from '../lab/archive-file.js';
import { auditArchive } from '../lab/audit.js';
import type { JudgedArchive } from '../lab/lab-receipt.js';
import { raiseExitCode } from './exit-code.js';
import { plainTable } from './plain-table.js';
import { openTerminal } from './terminal.js';

/** `waybill lab diff`: two archives of one protocol side by side; exit code 1 where bits or verdicts differ. */
export function labDiffCommand() {
  return new Command('diff')
    .description('compare two archives of one protocol, metric by metric; timings are never put together')
    .argument('<a.zip>', 'first archive')
    .argument('<b.zip>', 'second archive')
    .option('--json', 'print one JSON object')
    .action(async (a, b, options) => {
      const terminal = openTerminal(options);
      const diff = diffArchives(await audited(a), await audited(b));
      terminal.print(diffText(diff));
      if (terminal.json) terminal.printJson(diff);
      if (!diff.sameBits || !diff.sameVerdicts) raiseExitCode(exitCodes.gateFailed);
    });
}

/** @throws TamperedError with the first thing that does not hold */
async function audited(path: string): Promise<JudgedArchive> {
  const { audit, archive } = await auditArchive(await readArchiveFile(path), { name: basename(path) });
  if (audit.broken !== null) throw new TamperedError(audit.broken.code, audit.broken.problem);
  return archive!;
}

function diffText({ bits, gates, metrics, sameBits, sameVerdicts }: ArchiveDiff): string {
  const rows = bits.reduce((sum, { verdict, positions }) => sum + (verdict === 'equal' ? positions : 0), 0);
  const odd = bits.filter(({ verdict }) => verdict === 'different');
  const gateTable = plainTable(['gate', 'a', 'b', 'effect in a', 'effect in b']);
  for (const { name, verdicts, effects } of gates) {
    gateTable.push([name, ...verdicts, effectText(effects[0]), effectText(effects[1])]);
  }
  const metricTable = plainTable(['metric', 'arm', 'median in a', 'median in b', 'trials', '']);
  for (const { metric, arm, medians, counts, equal } of metrics) {
    metricTable.push([
      metric,
      arm,
      medians[0] ?? 'none',
      medians[1] ?? 'none',
      counts.join(', '),
      equalText(equal),
    ]);
  }
  return [
    sameBits
      ? `bits: ${rows} rows of logits are equal`
      : `bits: DIFFERENT in ${odd.map(({ arm, item }) => `"${arm}" item ${item + 1}`).join(', ')}`,
    `verdicts: ${sameVerdicts ? 'the same' : 'DIFFERENT'}`,
    '',
    gateTable.toString(),
    '',
    metricTable.toString(),
    '',
    'Times of two runs stand side by side; no ratio of them is an effect, for their trials were not paired',
    '',
  ].join('\n');
}

function effectText(effect: GateDiff['effects'][number]): string {
  if (effect?.ratio === null || effect === null) return '';
  const { ratio, interval } = effect;
  return interval === null ? ratio : `${short(ratio)} (${short(interval.low)} to ${short(interval.high)})`;
}

function short(fraction: string): string {
  return Number(fraction).toFixed(4);
}

function equalText(equal: MetricDiff['equal']): string {
  if (equal === null) return 'not compared';
  return equal ? 'equal' : 'different';
}
