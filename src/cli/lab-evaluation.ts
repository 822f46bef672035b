import type { Evaluation } from '../lab/evaluation.js';
import { plainTable } from './plain-table.js';
import type { Terminal } from './terminal.js';

/** Prints a verdict a gate at a time, with what limits it. */
export function printEvaluation(terminal: Terminal, path: string, evaluation: Evaluation): void {
  const { gates, noiseFloors, deviations, violations, verdict, status, variant } = evaluation;
  if (gates.length > 0) {
    const table = plainTable(['verdict', 'gate', 'family', 'why']);
    for (const gate of gates) table.push([gate.verdict, gate.name, gate.family, gate.reason]);
    terminal.print(`${table.toString()}\n`);
  }
  const notes = new Set(
    gates.flatMap((gate) => (gate.effect?.warnings ?? []).map(({ text }) => `${gate.name}: ${text}`)),
  );
  for (const note of notes) terminal.print(`note: ${note}\n`);
  for (const { metric, arm, against, floor } of noiseFloors) {
    const text =
      floor === null
        ? 'no noise floor'
        : `noise floor ${(100 * floor.share).toFixed(2)} % (ratio ${floor.ratio.toFixed(4)}, ${floor.low.toFixed(4)} to ${floor.high.toFixed(4)}, ${floor.pairs} pairs)`;
    terminal.print(`${metric}, "${arm}" against "${against}": ${text}\n`);
  }
  for (const deviation of deviations) terminal.print(`deviation: ${deviation}\n`);
  for (const violation of violations) terminal.print(`BROKEN: ${violation}\n`);
  const what = variant === 'aa' ? 'A/A run' : 'verdict';
  terminal.print(
    `${what}: ${verdict}; the run ${status === 'killed' ? 'was killed' : `is ${status}`}; records in ${path}\n`,
  );
  if (terminal.json) terminal.printJson({ run: path, ...evaluation });
}
