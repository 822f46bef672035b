import { callAside } from './foreign.js';
import type { ReadUse } from './memory-sampler.js';
import {
  type ComputeProcess,
  computeProcessesOf,
  listedProcesses,
  loadMonitoring,
  type MonitoringLibrary,
  memoryRoom,
  monitoredDevice,
  processInfoLayout,
  usedBytesIn,
  usedBytesOf,
} from './monitoring-library.js';

/** How a GPU hangs on its host. */
export interface LinkFacts {
  readonly generation: number;
  readonly width: number;
  readonly maxGeneration: number;
  readonly maxWidth: number;
}

interface Monitored {
  readonly library: MonitoringLibrary;
  readonly device: bigint;
}

function monitored(pciBusId: string): Monitored | null {
  const library = loadMonitoring();
  const device = library === null ? null : monitoredDevice(library, pciBusId);
  return library === null || device === null ? null : { library, device };
}

/** Bytes of a GPU that all processes together use now; null where the monitoring library cannot tell. */
export function usedDeviceBytes(pciBusId: string): number | null {
  const found = monitored(pciBusId);
  return found === null ? null : usedBytesOf(found.library, found.device);
}

const mostProcesses = 128;

/**
 * Reads what this process uses of a GPU, on a thread of its own: by the driver's account of processes where it names this
 * one, else what all use beyond `baselineBytes`. A process in a container goes by another number outside, so an account
 * that is less than what the process has allocated is not believed.
 */
export function readUse(
  pciBusId: string,
  baselineBytes: number | null,
  allocatedBytes: () => number,
): ReadUse {
  const found = monitored(pciBusId);
  if (found === null) return async () => null;
  const { library, device } = found;
  const count = new Uint32Array(1);
  const processes = new DataView(new ArrayBuffer(mostProcesses * processInfoLayout.byteLength));
  const memory = memoryRoom();
  let tellsProcesses = true;
  return async () => {
    if (tellsProcesses) {
      count[0] = mostProcesses;
      const list = library.nvmlDeviceGetComputeRunningProcesses_v3;
      const status = await callAside(list, device, count, processes);
      const own = status === 0 ? ownBytes(processes, count[0]!, process.pid) : null;
      if (own !== null && own >= allocatedBytes()) return { bytes: own, source: 'process' };
      tellsProcesses = false;
    }
    if (baselineBytes === null) return null;
    const status = await callAside(library.nvmlDeviceGetMemoryInfo_v2, device, memory);
    if (status !== 0) return null;
    return { bytes: Math.max(0, usedBytesIn(memory) - baselineBytes), source: 'baseline' };
  };
}

/** Bytes that the driver's account of processes has for this one now; null where it cannot tell, or does not name it. */
function ownDeviceBytes(pciBusId: string): number | null {
  const found = monitored(pciBusId);
  const processes = found === null ? null : computeProcessesOf(found.library, found.device);
  return processes === null ? null : bytesOf(processes, process.pid);
}

/** Bytes of a process in a list of nvmlProcessInfo_v2_t; null where it is not in it, or its bytes are not told. */
export function ownBytes(processes: DataView, count: number, pid: number): number | null {
  return bytesOf(listedProcesses(processes, count), pid);
}

function bytesOf(processes: readonly ComputeProcess[], pid: number): number | null {
  const own = processes.find((process) => process.pid === pid);
  return own === undefined || own.usedBytes === null ? null : Number(own.usedBytes);
}

/** PCIe generation and width, now and at most; null where the monitoring library cannot tell. */
export function linkFacts(pciBusId: string): LinkFacts | null {
  const found = monitored(pciBusId);
  if (found === null) return null;
  const { library, device } = found;
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

/** What a GPU was seen to hold at one moment: of all processes, and of this one. */
export interface SeenUse {
  readonly allBytes: number | null;
  readonly ownBytes: number | null;
}

/**
 * What was taken of a GPU between two moments: by this process's own account where that has grown, else by all processes',
 * which others change, too. An account that stands still is another process's, of the same number outside a container. Null
 * where nothing is told.
 */
export function takenBetween(before: SeenUse, after: SeenUse): number | null {
  const own = (after.ownBytes ?? 0) - (before.ownBytes ?? 0);
  if (own > 0) return own;
  if (before.allBytes === null || after.allBytes === null) return null;
  return Math.max(0, after.allBytes - before.allBytes);
}

/**
 * What a context with its modules takes of a GPU: measured around `make`, the first time in a process, so that plans of one
 * process agree. `baselineBytes`: what all used before.
 */
export function measureContext<Value>(
  pciBusId: string,
  make: () => Value,
): { readonly value: Value; readonly bytes: number | null; readonly baselineBytes: number | null } {
  const allBytes = usedDeviceBytes(pciBusId);
  const known = contextBytes.get(pciBusId);
  if (known !== undefined) return { value: make(), bytes: known, baselineBytes: allBytes };
  const before = { allBytes, ownBytes: ownDeviceBytes(pciBusId) };
  const value = make();
  const after = { allBytes: usedDeviceBytes(pciBusId), ownBytes: ownDeviceBytes(pciBusId) };
  const bytes = takenBetween(before, after);
  contextBytes.set(pciBusId, bytes);
  return { value, bytes, baselineBytes: allBytes };
}
