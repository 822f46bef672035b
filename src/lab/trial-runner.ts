import { zonedTime } from '../base/clock.js';
import { ExecutionError, InterruptedError, WaybillError } from '../base/errors.js';
import { type ArmDriver, type EpisodeUsage, unknownArm } from './arm-driver.js';
import { type DeviceWatch, intruders } from './device-watch.js';
import { DifferenceFound, EpisodeRecorder } from './episode-recorder.js';
import { firstDifference } from './faithfulness.js';
import { openArm } from './open-arm.js';
import type { LiveArm, Protocol } from './protocol-schema.js';
import {
  type MachineState,
  type RequestRecord,
  runFormat,
  type Slot,
  type TrialRecord,
} from './record-format.js';
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
  readonly #watch: DeviceWatch;
  readonly #open = new Map<string, { driver: ArmDriver; process: number }>();
  /** Results that a group's later trials on an item must repeat. */
  readonly #expected = new Map<string, { requests: readonly RequestRecord[]; oneSalt: boolean }>();
  #processes = 0;
  #heldBytes = 0n;
  #children = 0;

  constructor(setup: RunSetup, salt: Uint8Array, processes: number, watch: DeviceWatch, signal: AbortSignal) {
    this.#setup = setup;
    this.#protocol = setup.file.protocol;
    this.#salt = salt;
    this.#signal = signal;
    this.#processes = processes;
    this.#watch = watch;
  }

  /** Lets later trials be compared with an earlier one. */
  expect(record: TrialRecord): void {
    if (record.status !== 'completed') return;
    const key = this.#key(record.slot);
    if (this.#expected.has(key)) return;
    this.#expected.set(key, { requests: record.requests, oneSalt: record.borrowed === undefined });
  }

  /** Runs one trial. Whatever happens in it is in its record. */
  async run(slot: Slot, attempt: number): Promise<NewTrial> {
    const arm = this.#setup.arms.get(slot.arm)!;
    if (arm.kind === 'archive') return this.#borrowed(slot, attempt, arm.archive.sha256);
    const startedAt = zonedTime(Date.now());
    const before = this.#machine();
    const prompts = this.#setup.items[slot.item]!;
    const expected = this.#expected.get(this.#key(slot)) ?? null;
    let opened: { driver: ArmDriver; process: number; fresh: boolean } | null = null;
    let recorder: EpisodeRecorder | null = null;
    let usage = noUsage;
    let failure: unknown = null;
    try {
      opened = await this.#driverOf(arm);
      const sampling = arm.kind === 'command' || arm.samples;
      recorder = new EpisodeRecorder(opened.driver, prompts, expected?.requests ?? null, {
        sampling,
        deviceUsedBytes: () => this.#watch.usedBytes(),
      });
      // The block that comes first with an item, and a reference, which has each item once
      const first = slot.phase === 'reference' || (slot.phase === 'measured' && slot.block === slot.item);
      const episode = {
        prompts,
        newTokens: this.#protocol.workload.newTokens,
        keepLogits: first && arm.keepLogits === true,
      };
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
          ? firstDifference(expected.requests, requests, expected.oneSalt)
          : null;
    const after = this.#machine();
    const others = this.#watch.fatal ? (intruders(before) ?? intruders(after)) : null;
    if (failure === null && difference === null && others !== null) {
      failure = new ExecutionError(
        'foreign-process',
        `Cannot count the trial of "${slot.arm}": ${others} computed on the same GPU`,
      );
    }
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
      machine: { before, after },
      arm: driver?.facts ?? unknownArm,
    };
  }

  /** The record of an archive in a slot of this run. */
  #borrowed(slot: Slot, attempt: number, archiveSha256: string): NewTrial {
    const { sequence, previous: _, ...trial } = this.#setup.borrowed.get(slot.item)!;
    return {
      ...trial,
      slot,
      attempt,
      process: this.#processes,
      fresh: false,
      borrowed: { archiveSha256, record: sequence, slot: trial.slot },
    };
  }

  #machine(): MachineState {
    const drivers = [...this.#open.values()].map(({ driver }) => driver);
    const children = drivers.flatMap(({ processId }) => (processId === null ? [] : [processId]));
    return this.#watch.state(children, children.length + (children.length < drivers.length ? 1 : 0));
  }

  async #driverOf(arm: LiveArm): Promise<{ driver: ArmDriver; process: number; fresh: boolean }> {
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
