import { zonedTime } from '../base/clock.js';
import { InterruptedError, WaybillError } from '../base/errors.js';
import { type ArmDriver, type EpisodeUsage, unknownArm } from './arm-driver.js';
import { DifferenceFound, EpisodeRecorder } from './episode-recorder.js';
import { firstDifference } from './faithfulness.js';
import { machineState } from './machine-state.js';
import { openArm } from './open-arm.js';
import type { Arm, Protocol } from './protocol-schema.js';
import { type RequestRecord, runFormat, type Slot, type TrialRecord } from './record-format.js';
import type { NewRecord } from './run-folder.js';
import type { RunSetup } from './run-setup.js';

export type NewTrial = Extract<NewRecord, { kind: 'trial' }>;

const noUsage: EpisodeUsage = {
  moved: null,
  movedRows: null,
  deviceRead: null,
  peaks: {
    heldBytes: null,
    heldByCause: null,
    residentSetBytes: null,
    deviceUsedBytes: null,
    pinnedBytes: null,
  },
};

/** Runs trials one at a time, keeps arms open between them where the protocol shares a process. */
export class TrialRunner {
  readonly #setup: RunSetup;
  readonly #protocol: Protocol;
  readonly #salt: Uint8Array;
  readonly #signal: AbortSignal;
  readonly #open = new Map<string, { driver: ArmDriver; process: number }>();
  /** Results that a group's later trials on an item must repeat. */
  readonly #expected = new Map<string, readonly RequestRecord[]>();
  #processes = 0;
  #heldBytes = 0n;
  #children = 0;

  constructor(setup: RunSetup, salt: Uint8Array, processes: number, signal: AbortSignal) {
    this.#setup = setup;
    this.#protocol = setup.file.protocol;
    this.#salt = salt;
    this.#signal = signal;
    this.#processes = processes;
  }

  /** Lets later trials be compared with an earlier one. */
  expect(record: TrialRecord): void {
    if (record.status !== 'completed') return;
    const key = this.#key(record.slot);
    if (!this.#expected.has(key)) this.#expected.set(key, record.requests);
  }

  /** Runs one trial. Whatever happens in it is in its record. */
  async run(slot: Slot, attempt: number): Promise<NewTrial> {
    const arm = this.#setup.arms.get(slot.arm)!;
    const startedAt = zonedTime(Date.now());
    const before = machineState();
    const prompts = this.#setup.items[slot.item]!;
    const expected = this.#expected.get(this.#key(slot)) ?? null;
    let opened: { driver: ArmDriver; process: number; fresh: boolean } | null = null;
    let recorder: EpisodeRecorder | null = null;
    let usage = noUsage;
    let failure: unknown = null;
    try {
      opened = await this.#driverOf(arm);
      const sampling = arm.kind === 'command' || arm.samples;
      recorder = new EpisodeRecorder(opened.driver, prompts, expected, sampling);
      const episode = { prompts, newTokens: this.#protocol.workload.newTokens };
      usage = await opened.driver.runEpisode(episode, recorder, this.#signal);
    } catch (error) {
      failure = error;
    }
    recorder?.stop();
    const requests = recorder?.requests(this.#salt, this.#protocol.workload.includeContent) ?? [];
    const difference =
      failure instanceof DifferenceFound
        ? failure.difference
        : failure === null && expected !== null
          ? firstDifference(expected, requests)
          : null;
    const status = difference !== null ? 'different' : failure === null ? 'completed' : statusOf(failure);
    const now = process.hrtime.bigint();
    const { driver = null, fresh = false } = opened ?? {};
    if (this.#protocol.isolation === 'process-per-trial' || failure !== null) await this.close(slot.arm);
    return {
      format: runFormat,
      kind: 'trial',
      slot,
      attempt,
      status,
      error: status === 'failed' || status === 'interrupted' ? errorOf(failure) : null,
      difference,
      process: opened?.process ?? this.#processes,
      fresh,
      startedAt,
      finishedAt: zonedTime(Date.now()),
      requests,
      times: {
        beganNs: String(recorder?.beganNs ?? now),
        endedNs: String(recorder?.endedNs ?? now),
        setupNs: fresh && driver !== null ? String(driver.setupNs) : null,
        recordingNs: String(recorder?.recordingNs ?? 0n),
      },
      bytes: {
        moved: usage.moved,
        movedRows: usage.movedRows,
        setupMoved: fresh ? (driver?.setupMoved ?? null) : null,
        deviceRead: usage.deviceRead,
        recording: String(recorder?.recordingBytes ?? 0),
      },
      peaks: usage.peaks,
      samples: recorder?.samples() ?? [],
      machine: { before, after: machineState() },
      arm: driver?.facts ?? unknownArm,
    };
  }

  async #driverOf(arm: Arm): Promise<{ driver: ArmDriver; process: number; fresh: boolean }> {
    const kept = this.#open.get(arm.name);
    if (kept !== undefined) return { ...kept, fresh: false };
    const driver = await openArm(arm, this.#setup, this.#protocol.isolation, this.#signal);
    // Sessions of a shared process all have the ordinal of this process, which is 0 or that of the resumption
    const shared = arm.kind === 'session' && this.#protocol.isolation === 'shared-process';
    const opened = { driver, process: shared ? this.#processes : ++this.#childProcesses + this.#processes };
    this.#open.set(arm.name, opened);
    return { ...opened, fresh: true };
  }

  #childProcesses = 0;

  /** Closes one arm, or all of them. */
  async close(name?: string): Promise<void> {
    for (const [arm, { driver }] of [...this.#open]) {
      if (name !== undefined && arm !== name) continue;
      this.#open.delete(arm);
      const { heldBytes, children } = await driver.close();
      this.#heldBytes += heldBytes;
      this.#children += children;
    }
  }

  /** What closed arms have left behind. */
  get left(): { readonly heldBytes: bigint; readonly children: number } {
    return { heldBytes: this.#heldBytes, children: this.#children };
  }

  #key({ arm, item }: Slot): string {
    return `${item} ${this.#setup.arms.get(arm)!.group}`;
  }
}

function statusOf(failure: unknown): 'interrupted' | 'failed' {
  return failure instanceof InterruptedError ? 'interrupted' : 'failed';
}

function errorOf(failure: unknown): { code: string; message: string } {
  const code = failure instanceof WaybillError ? failure.code : 'unexpected';
  return { code, message: failure instanceof Error ? failure.message : String(failure) };
}
