import type { DeviceState } from '../backend/cuda/device-state.js';
import type { ComputeProcess } from '../backend/cuda/monitoring-library.js';
import { WaybillError } from '../base/errors.js';
import type { Environment } from './record-format.js';

/** The GPU of a run, watched from outside: readings need no context on it. */
export interface DeviceMonitor {
  /** What the lease locks: the UUID, or the PCI address where nobody tells it. */
  readonly resource: string;
  /** For the environment of the run's records. */
  readonly facts?: Environment['gpu'];
  state(): DeviceState;
  usedBytes(): number | null;
  computeProcesses(): readonly ComputeProcess[] | null;
}

/**
 * The GPU that sessions of this process open: the first that CUDA_VISIBLE_DEVICES leaves. Null where there is no driver; opening
 * the session says why.
 */
export async function openDeviceMonitor(): Promise<DeviceMonitor | null> {
  const { driverVersion, loadDriver, versionText } = await import('../backend/cuda/driver.js');
  const { listDevices } = await import('../backend/cuda/device.js');
  const { watchDevice } = await import('../backend/cuda/device-state.js');
  try {
    const driver = loadDriver();
    const device = listDevices(driver)[0];
    if (device === undefined) return null;
    const watched = watchDevice(device.pciBusId);
    const address = `gpu-${device.pciBusId.toLowerCase().replace(/[^0-9a-z]+/g, '-')}`;
    return {
      resource: watched?.uuid?.replace(/[^\w.-]+/g, '-') ?? address,
      facts: {
        name: device.name,
        memoryBytes: String(device.totalBytes),
        driver: versionText(driverVersion(driver)),
      },
      state: () => watched?.state() ?? nothingTold,
      usedBytes: () => watched?.usedBytes() ?? null,
      computeProcesses: () => watched?.computeProcesses() ?? null,
    };
  } catch (error) {
    if (error instanceof WaybillError) return null;
    throw error;
  }
}

const nothingTold: DeviceState = {
  clockMegahertz: null,
  memoryClockMegahertz: null,
  temperatureCelsius: null,
  throttleReasons: null,
  powerMilliwatts: null,
  powerCapMilliwatts: null,
  usedBytes: null,
};

/**
 * Which of the processes on a GPU are others'. `own` are the ids of this run; `before` are those that were there before it opened
 * anything. In a process namespace of its own (a container) the driver tells ids that this run does not know itself by: then as
 * many newcomers as the run has `contexts` are taken for its own, and none of more.
 */
export function foreignProcesses(
  found: readonly ComputeProcess[],
  own: ReadonlySet<number>,
  before: ReadonlySet<number>,
  contexts: number,
): ComputeProcess[] {
  const others = found.filter(({ pid }) => !own.has(pid));
  if (others.length < found.length || contexts === 0) return others;
  const newcomers = others.filter(({ pid }) => !before.has(pid));
  return newcomers.length > contexts ? others : others.filter(({ pid }) => before.has(pid));
}
