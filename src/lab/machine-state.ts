import { cpus, freemem, loadavg, totalmem } from 'node:os';
import type { ComputeProcess } from '../backend/cuda/monitoring-library.js';
import type { DeviceMonitor } from './device-monitor.js';
import type { Environment, MachineState } from './record-format.js';

/** What the machine is doing besides, as far as the system and the driver tell. */
export function machineState(
  monitor: DeviceMonitor | null,
  foreign: readonly ComputeProcess[] | null,
): MachineState {
  const common = {
    loadAverageThousandths: String(Math.round(loadavg()[0]! * 1000)),
    freeMemoryBytes: String(freemem()),
  };
  if (monitor === null)
    return { ...common, clocksMegahertz: null, temperatureCelsius: null, throttleReasons: null };
  const state = monitor.state();
  return {
    ...common,
    clocksMegahertz: decimal(state.clockMegahertz),
    temperatureCelsius: decimal(state.temperatureCelsius),
    throttleReasons: state.throttleReasons === null ? null : [...state.throttleReasons],
    memoryClockMegahertz: decimal(state.memoryClockMegahertz),
    powerMilliwatts: decimal(state.powerMilliwatts),
    powerCapMilliwatts: decimal(state.powerCapMilliwatts),
    deviceUsedBytes: decimal(state.usedBytes),
    foreignProcesses: foreign?.map(({ pid, usedBytes }) => ({ pid, usedBytes: decimal(usedBytes) })) ?? null,
  };
}

function decimal(value: number | bigint | null): string | null {
  return value === null ? null : String(value);
}

/** What the machine is, and its GPU where a run has one. */
export function runEnvironment(lease: readonly string[], gpu?: Environment['gpu']): Environment {
  const processors = cpus();
  return {
    platform: process.platform,
    architecture: process.arch,
    node: process.version,
    processor: processors[0]?.model.trim() ?? 'unknown',
    processors: processors.length,
    memoryBytes: String(totalmem()),
    lease: [...lease],
    ...(gpu === undefined ? {} : { gpu }),
  };
}
