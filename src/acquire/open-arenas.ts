import { type Span, subspan } from '../memory/buffers.js';
import type { HoldCause } from '../memory/causes.js';
import type { Placement } from './placement.js';
import { packetIndexBytes } from './staged-way.js';
import type { OpenedArena } from './way-builder.js';

/** Arenas of a placement, and what row paths need beside them. */
export function openArenas(
  { arenas, retention }: Placement,
  allocate: (label: string, parts: readonly (readonly [string, HoldCause, number])[]) => Span,
): OpenedArena[] {
  const keptCause: HoldCause =
    retention === null ? 'kept-rows' : retention.kind === 'lru' ? 'retention-slots' : 'retention-resident';
  const packets = arenas.map(({ scatterRows, packetRows, rowBytes }) => {
    if (scatterRows === 0) return null;
    const rows = packetRows * rowBytes;
    const indices = packetRows * packetIndexBytes;
    const packet = allocate('packet', [
      ['packet rows', 'packet-rows', rows],
      ['packet indices', 'indices', indices],
    ]);
    return { rows: subspan(packet, 0, rows), indices: subspan(packet, rows, indices) };
  });
  const spans = arenas.map((arena, index) => {
    const { rowBytes, packetRows, keptRows, guessRooms, guessRows, scatterRows } = arena;
    if (scatterRows > 0) {
      return allocate(`row arena ${index}`, [['scattered rows', 'workspace', scatterRows * rowBytes]]);
    }
    return allocate(`row arena ${index}`, [
      ['packet rows', 'packet-rows', packetRows * rowBytes],
      ['kept rows', keptCause, keptRows * rowBytes],
      ['guessed rows', 'forecast-rows', guessRooms * guessRows * rowBytes],
    ]);
  });
  return arenas.map((plan, index) => ({ plan, span: spans[index]!, packet: packets[index]! }));
}
