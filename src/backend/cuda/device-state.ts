import {
  type ComputeProcess,
  computeProcessesOf,
  loadMonitoring,
  type MonitoringLibrary,
  monitoredDevice,
  usedBytesOf,
} from './monitoring-library.js';

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

/**
 * Watches the GPU at a PCI address; null where the monitoring library is not there or does not know it. Reading needs no
 * context and takes none.
 */
export function watchDevice(pciBusId: string, library = loadMonitoring()): WatchedDevice | null {
  if (library === null) return null;
  const device = monitoredDevice(library, pciBusId);
  return device === null ? null : new Watched(library, device);
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
    return usedBytesOf(this.#library, this.#device);
  }

  computeProcesses(): ComputeProcess[] | null {
    return computeProcessesOf(this.#library, this.#device);
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
