import { cpus, freemem, loadavg, totalmem } from 'node:os';
import type { Environment, MachineState } from './record-format.js';

/** What the machine is doing besides, as far as the system tells. */
export function machineState(): MachineState {
  return {
    loadAverageThousandths: String(Math.round(loadavg()[0]! * 1000)),
    freeMemoryBytes: String(freemem()),
    clocksMegahertz: null,
    temperatureCelsius: null,
    throttleReasons: null,
  };
}

/** What the machine is. */
export function runEnvironment(lease: readonly string[]): Environment {
  const processors = cpus();
  return {
    platform: process.platform,
    architecture: process.arch,
    node: process.version,
    processor: processors[0]?.model.trim() ?? 'unknown',
    processors: processors.length,
    memoryBytes: String(totalmem()),
    lease: [...lease],
  };
}
