import { Command } from '@commander-js/extra-typings';
import { exitCodes } from '../base/errors.js';
import { compareOpTraces, type OpComparison } from '../generate/op-diff.js';
import { raiseExitCode } from './exit-code.js';
import { openTerminal } from './terminal.js';

/** `waybill diff`: the first op in which two recorded runs differ; exit code 1 where one does. */
export function diffCommand() {
  return new Command('diff')
    .argument('<a>', 'folder of the first record')
    .argument('<b>', 'folder of the second record')
    .option('--json', 'print one JSON object')
    .action(async (a, b, options) => {
      const terminal = openTerminal(options);
      const comparison = await compareOpTraces(a, b);
      terminal.print(comparisonText(comparison));
      if (terminal.json) terminal.printJson(comparison);
      if (comparison.first !== null) raiseExitCode(exitCodes.gateFailed);
      else if (comparison.compared === 0) raiseExitCode(exitCodes.inconclusive);
    });
}

function comparisonText({ compared, unmatched, first }: OpComparison): string {
  const [left, right] = unmatched;
  const alone = left + right === 0 ? '' : `; ${left} and ${right} ops stand in one record alone`;
  if (first === null) {
    return compared === 0
      ? `nothing to compare: no op of one record is in the other${alone}\n`
      : `bit-identical: ${compared} ops${alone}\n`;
  }
  const kinds = first.kinds[0] === first.kinds[1] ? first.kinds[0] : first.kinds.join(' and ');
  const where =
    first.index === null
      ? 'the sizes differ'
      : `index ${first.index}: ${first.values[0]} against ${first.values[1]}`;
  return `first difference: pass ${first.pass}, ${first.label} (${kinds}), ${where}; ${first.agreed} ops agreed before${alone}\n`;
}
