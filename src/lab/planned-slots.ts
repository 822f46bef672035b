import type { Protocol } from './protocol-schema.js';
import type { Slot } from './record-format.js';
import { balancedOrder, spelledOrder, warmUpOrder } from './schedule.js';

/** How many trials `plannedSlots` gives. */
export function plannedCount({ arms, reference, schedule }: Protocol, items: number): number {
  const references = reference === undefined ? 0 : Math.min(items, schedule.blocks);
  return references + arms.length * (schedule.warmUps + schedule.blocks);
}

/**
 * All trials of a protocol over `items` workload items, in their order: references that come first (each item once),
 * warm-ups (on item 0), the blocks (taking the items in turn), references that come last. The same seed gives the
 * same list on every machine.
 */
export function plannedSlots(protocol: Protocol, items: number): Slot[] {
  const { arms, reference, schedule } = protocol;
  const names = arms.map(({ name }) => name);
  const used = Math.min(items, schedule.blocks);
  const references = Array.from(
    { length: reference === undefined ? 0 : used },
    (_, item): Slot => ({
      phase: 'reference',
      block: null,
      position: null,
      arm: reference!.arm.name,
      item,
    }),
  );
  const warmUps = warmUpOrder(arms.length, schedule.warmUps, schedule.seed).map(
    (arm): Slot => ({
      phase: 'warm-up',
      block: null,
      position: null,
      arm: names[arm]!,
      item: 0,
    }),
  );
  const order =
    schedule.order === 'balanced'
      ? balancedOrder(arms.length, schedule.blocks, schedule.seed)
      : spelledOrder(names, schedule.order);
  const measured = order.map(
    ({ block, position, arm }): Slot => ({
      phase: 'measured',
      block,
      position,
      arm: names[arm]!,
      item: block % items,
    }),
  );
  return reference?.when === 'last'
    ? [...warmUps, ...measured, ...references]
    : [...references, ...warmUps, ...measured];
}
