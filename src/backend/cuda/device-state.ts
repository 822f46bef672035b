import { type ForeignLibrary, loadForeign, monitorFunctions } from './foreign.js';

/** The monitoring library, or something that answers as it does. Each function fills the room that it is given and returns 0. */
export type MonitoringLibrary = ForeignLibrary<typeof monitorFunctions>;

/** A process that computes on a GPU; its bytes there where the driver tells them. */
export interface ComputeProcess {
  readonly pid: number;
  readonly usedBytes: bigint | null;
}

/** What a GPU is doing. Null where the monitoring library does not tell. */
export interface DeviceState {
  readonly clockMegahertz: number | null;
  readonly memoryClockMegahertz: number | null;
  readonly temperatureCelsius: number | null;
  /** Why clocks are not the highest, by the names of nvml.h; empty where nothing holds them back. */
  readonly throttleReasons: readonly string[] | null;
  readonly powerMilliwatts: number | null;
  readonly powerCapMilliwatts: number | null;
  /** Of all processes together. */
  readonly usedBytes: number | null;
}

/** One GPU, watched through nvml.h. */
export interface WatchedDevice {
  /** `GPU-...`, or null where it is not told. */
  readonly uuid: string | null;
  state(): DeviceState;
  usedBytes(): number | null;
  /** Null where the library does not list them. */
  computeProcesses(): readonly ComputeProcess[] | null;
}

/** nvmlClocksThrottleReasons of nvml.h, from bit 0. */
const throttleNames = [
  'gpu-idle',
  'applications-clocks-setting',
  'sw-power-cap',
  'hw-slowdown',
  'sync-boost',
  'sw-thermal-slowdown',
  'hw-thermal-slowdown',
  'hw-power-brake-slowdown',
  'display-clock-setting',
] as const;

const clockTypes = { multiprocessors: 1, memory: 2 } as const;
const insufficientSize = 7;
/** NVML_VALUE_NOT_AVAILABLE. */
const notAvailable = 0xffff_ffff_ffff_ffffn;
/** nvmlProcessInfo_t: pid at 0, used memory at 8, two instance ids behind. */
const processInfoBytes = 24;

/**
 * Watches the GPU at a PCI address; null where the monitoring library is not there or does not know it. Reading needs no
 * context and takes none.
 */
export function watchDevice(pciBusId: string, library = loadMonitoring()): WatchedDevice | null {
  if (library === null) return null;
  const room = new BigUint64Array(1);
  if (library.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, room) !== 0) return null;
  return new Watched(library, room[0]!);
}

let loaded: MonitoringLibrary | null | undefined;

function loadMonitoring(): MonitoringLibrary | null {
  if (loaded !== undefined) return loaded;
  try {
    const library = loadForeign('libnvidia-ml.so.1', monitorFunctions);
    loaded = library.nvmlInit_v2() === 0 ? library : null;
  } catch {
    loaded = null;
  }
  return loaded;
}

class Watched implements WatchedDevice {
  readonly uuid: string | null;
  readonly #library: MonitoringLibrary;
  readonly #device: bigint;

  constructor(library: MonitoringLibrary, device: bigint) {
    this.#library = library;
    this.#device = device;
    const text = Buffer.alloc(96);
    const told = library.nvmlDeviceGetUUID(device, text, text.byteLength) === 0;
    this.uuid = told ? text.toString('latin1', 0, Math.max(0, text.indexOf(0))) || null : null;
  }

  state(): DeviceState {
    const library = this.#library;
    const device = this.#device;
    const clock = (type: number) => told((room) => library.nvmlDeviceGetClockInfo(device, type, room));
    return {
      clockMegahertz: clock(clockTypes.multiprocessors),
      memoryClockMegahertz: clock(clockTypes.memory),
      temperatureCelsius: told((room) => library.nvmlDeviceGetTemperature(device, 0, room)),
      throttleReasons: this.#throttleReasons(),
      powerMilliwatts: told((room) => library.nvmlDeviceGetPowerUsage(device, room)),
      powerCapMilliwatts: told((room) => library.nvmlDeviceGetEnforcedPowerLimit(device, room)),
      usedBytes: this.usedBytes(),
    };
  }

  usedBytes(): number | null {
    const totalFreeUsed = new BigUint64Array(8);
    if (this.#library.nvmlDeviceGetMemoryInfo(this.#device, totalFreeUsed) !== 0) return null;
    return Number(totalFreeUsed[2]!);
  }

  computeProcesses(): ComputeProcess[] | null {
    // Processes may come while we ask, so there is room for more than were counted
    for (let places = 64; places <= 4096; places *= 4) {
      const count = Uint32Array.of(places);
      const infos = new DataView(new ArrayBuffer(places * processInfoBytes));
      const code = this.#library.nvmlDeviceGetComputeRunningProcesses_v3(this.#device, count, infos);
      if (code === insufficientSize) continue;
      if (code !== 0) return null;
      return Array.from({ length: count[0]! }, (_, index) => {
        const used = infos.getBigUint64(index * processInfoBytes + 8, true);
        return {
          pid: infos.getUint32(index * processInfoBytes, true),
          usedBytes: used === notAvailable ? null : used,
        };
      });
    }
    return null;
  }

  #throttleReasons(): string[] | null {
    const bits = new BigUint64Array(1);
    if (this.#library.nvmlDeviceGetCurrentClocksThrottleReasons(this.#device, bits) !== 0) return null;
    const names: string[] = [];
    for (let bit = 0; bit < 64; bit++) {
      if (((bits[0]! >> BigInt(bit)) & 1n) === 1n) names.push(throttleNames[bit] ?? `bit-${bit}`);
    }
    return names;
  }
}

/** An unsigned value, or null where the call fails. */
function told(call: (room: Uint32Array) => number): number | null {
  const room = new Uint32Array(1);
  return call(room) === 0 ? room[0]! : null;
}
