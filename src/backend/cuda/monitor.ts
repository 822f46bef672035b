import { type ForeignLibrary, loadForeign, monitorFunctions } from './foreign.js';

type MonitorLibrary = ForeignLibrary<typeof monitorFunctions>;

/** How a GPU hangs on its host. */
export interface LinkFacts {
  readonly generation: number;
  readonly width: number;
  readonly maxGeneration: number;
  readonly maxWidth: number;
}

let loaded: MonitorLibrary | null | undefined;

/** The driver's monitoring library, or null where it is not there. */
function monitor(): MonitorLibrary | null {
  if (loaded !== undefined) return loaded;
  try {
    const library = loadForeign('libnvidia-ml.so.1', monitorFunctions);
    loaded = library.nvmlInit_v2() === 0 ? library : null;
  } catch {
    loaded = null;
  }
  return loaded;
}

function deviceOf(library: MonitorLibrary, pciBusId: string): bigint | null {
  const room = new BigUint64Array(1);
  return library.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, room) === 0 ? room[0]! : null;
}

/** Bytes of a GPU that all processes together use now; null where the monitoring library cannot tell. */
export function usedDeviceBytes(pciBusId: string): number | null {
  const library = monitor();
  const device = library === null ? null : deviceOf(library, pciBusId);
  if (library === null || device === null) return null;
  const totalFreeUsed = new BigUint64Array(new ArrayBuffer(64));
  return library.nvmlDeviceGetMemoryInfo(device, totalFreeUsed) === 0 ? Number(totalFreeUsed[2]!) : null;
}

/** PCIe generation and width, now and at most; null where the monitoring library cannot tell. */
export function linkFacts(pciBusId: string): LinkFacts | null {
  const library = monitor();
  const device = library === null ? null : deviceOf(library, pciBusId);
  if (library === null || device === null) return null;
  const values = (
    [
      'nvmlDeviceGetCurrPcieLinkGeneration',
      'nvmlDeviceGetCurrPcieLinkWidth',
      'nvmlDeviceGetMaxPcieLinkGeneration',
      'nvmlDeviceGetMaxPcieLinkWidth',
    ] as const
  ).map((call) => {
    const room = new Uint32Array(1);
    return library[call](device, room) === 0 ? room[0]! : 0;
  });
  const [generation, width, maxGeneration, maxWidth] = values as [number, number, number, number];
  return { generation, width, maxGeneration, maxWidth };
}

const contextBytes = new Map<string, number | null>();

/**
 * What a context with its modules takes of a GPU: measured around `make`, the first time in a process, so that plans of one
 * process agree. Includes what other processes allocate meanwhile, as nothing tells them apart.
 */
export function measureContext<Value>(
  pciBusId: string,
  make: () => Value,
): { readonly value: Value; readonly bytes: number | null } {
  const before = usedDeviceBytes(pciBusId);
  const value = make();
  const after = usedDeviceBytes(pciBusId);
  const known = contextBytes.get(pciBusId);
  if (known !== undefined) return { value, bytes: known };
  const bytes = before === null || after === null ? null : Math.max(0, after - before);
  contextBytes.set(pciBusId, bytes);
  return { value, bytes };
}
