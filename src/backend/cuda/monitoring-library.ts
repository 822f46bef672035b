import { type ForeignLibrary, loadForeign, monitorFunctions } from './foreign.js';

/** The driver's monitoring library, or something that answers as it does. Each function fills the room that it is given and returns 0. */
export type MonitoringLibrary = ForeignLibrary<typeof monitorFunctions>;

let loaded: MonitoringLibrary | null | undefined;

/** Null where it is not there. */
export function loadMonitoring(): MonitoringLibrary | null {
  if (loaded !== undefined) return loaded;
  try {
    const library = loadForeign('libnvidia-ml.so.1', monitorFunctions);
    loaded = library.nvmlInit_v2() === 0 ? library : null;
  } catch {
    loaded = null;
  }
  return loaded;
}

/** What the library calls the GPU at a PCI address; null where it does not know it. */
export function monitoredDevice(library: MonitoringLibrary, pciBusId: string): bigint | null {
  const room = new BigUint64Array(1);
  return library.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, room) === 0 ? room[0]! : null;
}

/** nvmlMemory_v2_t of nvml.h in words of 8 bytes: version, total, reserved, free, used. The older form counts what the driver reserves as used. */
const memoryWords = { version: 0, used: 4, length: 5 } as const;

/** Room for what the library says of a GPU's memory. */
export function memoryRoom(): BigUint64Array {
  const room = new BigUint64Array(memoryWords.length);
  room[memoryWords.version] = BigInt(room.byteLength) | (2n << 24n);
  return room;
}

/** Bytes that all processes together use, without those that the driver keeps for itself. */
export function usedBytesIn(room: BigUint64Array): number {
  return Number(room[memoryWords.used]!);
}

/** Bytes of a GPU that all processes together use now; null where it cannot be told. */
export function usedBytesOf(library: MonitoringLibrary, device: bigint): number | null {
  const room = memoryRoom();
  return library.nvmlDeviceGetMemoryInfo_v2(device, room) === 0 ? usedBytesIn(room) : null;
}

/** A process that computes on a GPU; its bytes there where the driver tells them. */
export interface ComputeProcess {
  readonly pid: number;
  readonly usedBytes: bigint | null;
}

/** nvmlProcessInfo_v2_t of nvml.h: pid at 0, usedGpuMemory at 8, two instance ids behind it. */
export const processInfoLayout = { pid: 0, usedBytes: 8, byteLength: 24 } as const;
/** NVML_VALUE_NOT_AVAILABLE: containers and some drivers do not tell. */
const notAvailable = 0xffff_ffff_ffff_ffffn;

/** The first `count` of a list of nvmlProcessInfo_v2_t. */
export function listedProcesses(processes: DataView, count: number): ComputeProcess[] {
  return Array.from({ length: count }, (_, index) => {
    const at = index * processInfoLayout.byteLength;
    const usedBytes = processes.getBigUint64(at + processInfoLayout.usedBytes, true);
    return {
      pid: processes.getUint32(at + processInfoLayout.pid, true),
      usedBytes: usedBytes === notAvailable ? null : usedBytes,
    };
  });
}

const insufficientSize = 7;

/** Processes that compute on a device, by the driver's account; null where the library does not list them. */
export function computeProcessesOf(library: MonitoringLibrary, device: bigint): ComputeProcess[] | null {
  // Processes may come while we ask, so there is room for more than were counted
  for (let places = 64; places <= 4096; places *= 4) {
    const count = Uint32Array.of(places);
    const infos = new DataView(new ArrayBuffer(places * processInfoLayout.byteLength));
    const code = library.nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
    if (code === insufficientSize) continue;
    if (code !== 0) return null;
    return listedProcesses(infos, count[0]!);
  }
  return null;
}
