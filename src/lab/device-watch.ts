import type { ComputeProcess } from '../backend/cuda/monitoring-library.js';
import { SetupError } from '../base/errors.js';
import { type DeviceMonitor, foreignProcesses } from './device-monitor.js';
import { machineState } from './machine-state.js';
import type { MachineState } from './record-format.js';

/** Watches the machine, and its GPU where a run has one, over a run: clocks, heat, power, and who else computes there. */
export class DeviceWatch {
  readonly monitor: DeviceMonitor | null;
  readonly fatal: boolean;
  readonly #before: ReadonlySet<number>;

  /** Made before the run opens anything, so that whoever computes on the GPU then is somebody else. */
  constructor(monitor: DeviceMonitor | null, fatal: boolean) {
    this.monitor = monitor;
    this.fatal = fatal;
    this.#before = new Set(monitor?.computeProcesses()?.map(({ pid }) => pid));
  }

  /** @throws SetupError `foreign-process` where the protocol makes others fatal and there are some */
  requireAlone(): void {
    const foreign = this.fatal ? this.#foreign(new Set(), 0) : null;
    if (foreign === null || foreign.length === 0) return;
    throw new SetupError(
      'foreign-process',
      `Cannot run the protocol: ${pidsText(foreign)} computes on "${this.monitor?.resource}", want nobody else there`,
      { pids: foreign.map(({ pid }) => pid) },
    );
  }

  /** A reading; `children` are processes of the run besides this one. */
  state(children: readonly number[], contexts: number): MachineState {
    return machineState(this.monitor, this.#foreign(new Set([process.pid, ...children]), contexts));
  }

  usedBytes(): number | null {
    return this.monitor?.usedBytes() ?? null;
  }

  #foreign(own: ReadonlySet<number>, contexts: number): ComputeProcess[] | null {
    const found = this.monitor?.computeProcesses() ?? null;
    return found === null ? null : foreignProcesses(found, own, this.#before, contexts);
  }
}

/** What a fatal reading says of others, or null. */
export function intruders({ foreignProcesses: found }: MachineState): string | null {
  if (found === undefined || found === null || found.length === 0) return null;
  return pidsText(found);
}

function pidsText(found: readonly { readonly pid: number }[]): string {
  return `${found.length === 1 ? 'process' : 'processes'} ${found.map(({ pid }) => pid).join(', ')}`;
}
