import { judgeGates } from './gates.js';
import type { Protocol } from './protocol-schema.js';
import type { Manifest, RunRecord, Slot } from './record-format.js';
import { type Selection, selectTrials } from './selection.js';

/** A run's records along its schedule and its sequential rule. What breaks the rule is a violation like any other. */
export function selectRun(protocol: Protocol, manifest: Manifest, records: readonly RunRecord[]): Selection {
  const selection = selectTrials(manifest, records);
  return {
    ...selection,
    violations: [...selection.violations, ...violationsOf(protocol, manifest, selection)],
  };
}

/**
 * True where the rule ends a run after `blocks` blocks: it is a look before the last, all of them are whole, and every gate on a
 * ratio is decided there. An A/A run has no gates, and runs all blocks.
 */
export function stopsAfter(
  protocol: Protocol,
  manifest: Manifest,
  selection: Selection,
  blocks: number,
): boolean {
  const { sequential } = protocol.schedule;
  if (sequential === undefined || manifest.variant === 'aa') return false;
  if (!sequential.looks.slice(0, -1).includes(blocks)) return false;
  const seen = selection.blocks.slice(0, blocks);
  if (seen.length < blocks || seen.includes(null)) return false;
  const upToThere: Selection = { ...selection, blocks: seen, status: 'completed', violations: [] };
  return judgeGates(protocol, upToThere)
    .filter(({ check }) => check === 'ratio-at-most')
    .every(({ verdict }) => verdict === 'pass' || verdict === 'fail');
}

/** Blocks that are over where measured trials go on behind a slot: the next of them begins a block; null inside one. */
export function blocksBefore(slots: readonly Slot[]): number | null {
  const next = slots.find(({ phase }) => phase === 'measured');
  return next?.position === 0 ? next.block : null;
}

function violationsOf(protocol: Protocol, manifest: Manifest, selection: Selection): string[] {
  const stopped = selection.ended?.stoppedAfterBlocks;
  const looks = protocol.schedule.sequential?.looks ?? [];
  if (stopped !== undefined && !stopsAfter(protocol, manifest, selection, stopped))
    return [`the run says that its rule ended it after ${stopped} blocks, and the rule does not`];
  const passed = looks.find(
    (look) => look < selection.blocks.length && stopsAfter(protocol, manifest, selection, look),
  );
  if (passed === undefined || selection.ended === null) return [];
  if (selection.ended.status !== 'completed') return [];
  return [`the rule ends the run after ${passed} blocks, and it went on`];
}
