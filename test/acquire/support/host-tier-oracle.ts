import type { Backend } from '../../../src/backend/backend.js';
import { spanOf } from '../../../src/memory/buffers.js';
import { openOracle } from './session.js';

/** The oracle with host memory that its ops can read: what a device offers, in one address space. */
export async function withHostTier(): Promise<Backend & { mirrored: number; movedWithin: number }> {
  const oracle = await openOracle();
  const backend = Object.assign(Object.create(oracle) as Backend, {
    mirrored: 0,
    movedWithin: 0,
    hostTier: {
      directRows: 4,
      moveWithin: async (moves) => {
        backend.movedWithin += moves.length;
        for (const { from, to } of moves) oracle.write(to, (await oracle.read(from)).slice());
      },
      mirror: async (file, position, request) => {
        const buffer = oracle.allocate(request);
        await oracle.transfer([{ file, position, target: spanOf(buffer) }]);
        backend.mirrored += request.byteLength;
        return buffer;
      },
    } satisfies NonNullable<Backend['hostTier']>,
  });
  for (const name of [
    'allocate',
    'release',
    'submit',
    'write',
    'read',
    'transfer',
    'prefetch',
    'close',
  ] as const) {
    Object.assign(backend, { [name]: (oracle[name] as (...values: unknown[]) => unknown).bind(oracle) });
  }
  return backend;
}
