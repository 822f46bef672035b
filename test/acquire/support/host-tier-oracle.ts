import type { Backend } from '../../../src/backend/backend.js';
import { spanOf } from '../../../src/memory/buffers.js';
import { openOracle } from './session.js';

/** The oracle with host memory that its ops can read: what a device offers, in one address space. */
export async function withHostTier(): Promise<Backend & { mirrored: number }> {
  const oracle = await openOracle();
  const backend = Object.assign(Object.create(oracle) as Backend, {
    mirrored: 0,
    hostTier: {
      directRows: 4,
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
