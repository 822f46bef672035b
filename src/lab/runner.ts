import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { zonedTime } from '../base/clock.js';
import { exitCodes, InputError, TamperedError, UsageError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import type { SessionHooks } from '../generate/session-options.js';
import { type DeviceMonitor, openDeviceMonitor } from './device-monitor.js';
import { DeviceWatch } from './device-watch.js';
import { type Evaluation, evaluateRun } from './evaluation.js';
import { weightiestExitCode } from './exit-codes.js';
import { defaultLeaseFolder, gpuResource, type Lease, processorResources, takeLease } from './lease.js';
import { runEnvironment } from './machine-state.js';
import { plannedSlots } from './planned-slots.js';
import { type Arm, allArms, type Protocol } from './protocol-schema.js';
import type { RunData } from './read-run.js';
import {
  type EndedRecord,
  type Manifest,
  type RunRecord,
  runFiles,
  runFormat,
  type Slot,
  type TrialRecord,
} from './record-format.js';
import { RunFolder, readRunFolder } from './run-folder.js';
import { prepareRun, type RunSetup, readProtocolFile } from './run-setup.js';
import { resumePoint, selectTrials, slotsFrom } from './selection.js';
import { blocksBefore, selectRun, stopsAfter } from './sequential.js';
import { type NewTrial, TrialRunner } from './trial-runner.js';
import { itemDigest } from './workload.js';

/** What a run may be watched by; no part of its records. */
export interface RunHooks extends SessionHooks {
  /** Before each trial: how many are done of how many. */
  readonly onTrial?: (slot: Slot, done: number, total: number) => void;
  readonly onRecord?: (record: NewTrial) => void;
}

export interface RunRequest {
  readonly protocolPath: string;
  /** A new folder. */
  readonly runPath: string;
  readonly model?: string | undefined;
  /** `aa`: every arm as the first, for the noise floor. */
  readonly variant?: Manifest['variant'] | undefined;
  readonly leaseFolder?: string | undefined;
  /** Watches the GPU in place of the driver's own library. */
  readonly monitor?: DeviceMonitor | undefined;
}

export interface ResumeRequest {
  readonly runPath: string;
  readonly model?: string | undefined;
  readonly leaseFolder?: string | undefined;
  readonly monitor?: DeviceMonitor | undefined;
}

const localSchema = z.strictObject({ model: z.string().nullable(), folder: z.string() });

/**
 * Runs a frozen protocol into a new folder and judges it from what is on the disk. Stops at the first differing logit,
 * at a failure and at an abort; the records stay in each case.
 * @throws as `prepareRun`, `takeLease` and `RunFolder`; what goes wrong inside a trial is in its record
 */
export async function runProtocol(request: RunRequest, hooks: RunHooks = {}): Promise<Evaluation> {
  const variant = request.variant ?? 'measured';
  const { protocol: asked } = await readProtocolFile(request.protocolPath);
  const { lease, watch } = await reserve(asked, request);
  try {
    // Planning opens the GPU, so it is ours by then
    const setup = await prepareRun({ ...request, variant }, hooks);
    const salt = randomBytes(32);
    const { protocol, digest } = setup.file;
    const manifest: Manifest = {
      format: runFormat,
      kind: 'manifest',
      variant,
      protocol: { name: protocol.name, digest },
      program: setup.program,
      subjects: setup.subjects,
      items: setup.items.map((prompts) => itemDigest(prompts, salt)),
      slots: plannedSlots(protocol, setup.items.length),
      startedAt: zonedTime(Date.now()),
      environment: runEnvironment(lease.resources, watch.monitor?.facts),
    };
    const local = JSON.stringify({
      model: setup.model === null ? null : resolve(setup.model),
      folder: setup.folder,
    });
    const folder = await RunFolder.create(request.runPath, {
      protocol: setup.protocolBytes,
      superseded: setup.superseded,
      salt: salt.toString('hex'),
      local,
      manifest,
    });
    const signal = hooks.signal ?? new AbortController().signal;
    const runner = new TrialRunner(setup, salt, 0, watch, signal);
    return await execute(
      { setup, folder, runner, lease, watch, slots: manifest.slots, manifest, records: [] },
      hooks,
    );
  } finally {
    await lease.release();
  }
}

/**
 * Goes on with a run that was killed or interrupted: repeats its broken block, keeps the block's records.
 * @throws UsageError `run-ended`; TamperedError where the run, the program or the model is another; as `runProtocol`
 */
export async function resumeRun(request: ResumeRequest, hooks: RunHooks = {}): Promise<Evaluation> {
  const { protocol } = (await readRunFolder(request.runPath)).protocolFile;
  const { lease, watch } = await reserve(protocol, request);
  try {
    const { folder, run, salt, local } = await RunFolder.open(request.runPath);
    const { manifest, records } = run;
    const selection = selectRun(protocol, manifest, records);
    if (selection.status !== 'killed' && selection.status !== 'interrupted') {
      throw new UsageError(
        'run-ended',
        `Cannot resume "${request.runPath}": the run has ended (${selection.status}), want one that was broken off`,
        {
          status: selection.status,
        },
      );
    }
    if (selection.violations.length > 0) {
      throw new TamperedError(
        'schedule-mismatch',
        `Cannot resume "${request.runPath}": ${selection.violations[0]}`,
      );
    }
    const setup = await prepareAgain(request, run, local, hooks);
    const next = resumePoint(
      manifest,
      selection.blocks,
      selection.references.length,
      selection.warmUps.length,
    );
    const broken = manifest.slots[next]?.block ?? null;
    const resumed = await folder.append({
      format: runFormat,
      kind: 'resumed',
      at: zonedTime(Date.now()),
      nextSlot: next,
      brokenBlock: broken,
      environment: runEnvironment(lease.resources, watch.monitor?.facts),
    });
    const earlier = records.filter((record) => record.kind === 'trial');
    const processes = 1 + Math.max(-1, ...earlier.map((record) => record.process));
    const signal = hooks.signal ?? new AbortController().signal;
    const runner = new TrialRunner(setup, Buffer.from(salt, 'hex'), processes, watch, signal);
    for (const record of selection.judged) runner.expect(record);
    const slots = slotsFrom(manifest.slots, next);
    return await execute(
      { setup, folder, runner, lease, watch, slots, manifest, records: [...records, resumed] },
      hooks,
    );
  } finally {
    await lease.release();
  }
}

/** Takes processors, and the GPU where an arm uses one, before anything is opened on them. */
async function reserve(
  protocol: Protocol,
  { leaseFolder, monitor }: Pick<RunRequest, 'leaseFolder' | 'monitor'>,
): Promise<{ lease: Lease; watch: DeviceWatch }> {
  const onGpu = allArms(protocol).some(usesGpu);
  const device = onGpu ? (monitor ?? (await openDeviceMonitor())) : null;
  const resources = [...processorResources(), ...(onGpu ? [device?.resource ?? gpuResource()] : [])];
  const lease = await takeLease(resources, leaseFolder ?? defaultLeaseFolder());
  const watch = new DeviceWatch(device, protocol.foreignProcesses === 'fatal');
  try {
    watch.requireAlone();
  } catch (error) {
    await lease.release();
    throw error;
  }
  return { lease, watch };
}

function usesGpu(arm: Arm): boolean {
  return arm.kind === 'session' && (arm.backend === 'cuda' || arm.backend === 'auto');
}

async function prepareAgain(
  request: ResumeRequest,
  run: RunData,
  localText: string,
  hooks: RunHooks,
): Promise<RunSetup> {
  const local = localSchema.safeParse(parseJson(localText, 'local.json'));
  if (!local.success) {
    throw new InputError('bad-local-file', `Cannot resume "${request.runPath}": its "local.json" is damaged`);
  }
  const { manifest } = run;
  const setup = await prepareRun(
    {
      protocolPath: join(request.runPath, runFiles.protocol),
      folder: local.data.folder,
      chainFolder: join(request.runPath, 'superseded'),
      model: request.model ?? local.data.model ?? undefined,
      variant: manifest.variant,
    },
    hooks,
  );
  if (setup.program.sha256 !== manifest.program.sha256) {
    throw new TamperedError(
      'program-changed',
      `Cannot resume "${request.runPath}": it was begun by ${manifest.program.name} (${manifest.program.sha256}), this is ${setup.program.name} (${setup.program.sha256})`,
      { begun: manifest.program, now: setup.program },
    );
  }
  return setup;
}

interface Execution {
  readonly setup: RunSetup;
  readonly folder: RunFolder;
  readonly runner: TrialRunner;
  readonly lease: Lease;
  readonly watch: DeviceWatch;
  readonly slots: readonly Slot[];
  readonly manifest: Manifest;
  /** Those that are on the disk already. */
  readonly records: readonly RunRecord[];
}

/** How the trials ended. */
type Outcome = Pick<EndedRecord, 'status' | 'error' | 'stoppedAfterBlocks'>;

async function execute(execution: Execution, hooks: RunHooks): Promise<Evaluation> {
  const { setup, folder, runner, lease, watch } = execution;
  const residentBefore = process.memoryUsage.rss();
  const deviceBefore = watch.usedBytes();
  let outcome: Outcome;
  try {
    outcome = await runSlots(execution, hooks);
  } finally {
    await runner.close();
  }
  const locksLeft = await lease.release();
  await folder.append({
    format: runFormat,
    kind: 'ended',
    at: zonedTime(Date.now()),
    ...outcome,
    endState: {
      heldBytes: String(runner.left.heldBytes),
      residentSetBytesBefore: String(residentBefore),
      residentSetBytesAfter: String(process.memoryUsage.rss()),
      childrenLeft: runner.left.children,
      scratchLeft: locksLeft + (await draftsIn(folder.path)),
      ...(watch.monitor === null
        ? {}
        : {
            deviceUsedBytesBefore: deviceBefore === null ? null : String(deviceBefore),
            deviceUsedBytesAfter: watch.usedBytes()?.toString() ?? null,
          }),
    },
  });
  // Judged from the disk, as anybody else would
  const run = await readRunFolder(folder.path);
  const evaluation = evaluateRun(setup.file.protocol, run.manifest, run.records);
  if (outcome.status !== 'interrupted') return evaluation;
  return { ...evaluation, exitCode: weightiestExitCode([evaluation.exitCode, exitCodes.interrupted]) };
}

async function runSlots(
  { setup, folder, runner, slots, manifest, records: begun }: Execution,
  hooks: RunHooks,
): Promise<Outcome> {
  const { protocol } = setup.file;
  const records = [...begun];
  const earlier = begun.filter((record) => record.kind === 'trial');
  for (const [index, slot] of slots.entries()) {
    if (hooks.signal?.aborted === true) return { status: 'interrupted', error: null };
    const over = index === 0 || slot.phase === 'measured' ? blocksBefore(slots.slice(index)) : null;
    if (over !== null && stopsAfter(protocol, manifest, selectTrials(manifest, records), over))
      return { status: 'completed', error: null, stoppedAfterBlocks: over };
    hooks.onTrial?.(slot, index, slots.length);
    const record = await runner.run(slot, attemptOf(slot, earlier));
    const written = await folder.append(record);
    records.push(written);
    hooks.onRecord?.(record);
    if (record.status !== 'completed') return { status: record.status, error: record.error };
    if (written.kind === 'trial') runner.expect(written);
    if (!slots.slice(index + 1).some(({ arm }) => arm === slot.arm)) await runner.close(slot.arm);
  }
  return { status: 'completed', error: null };
}

/** One more than the attempts of earlier processes: of a measured trial's block, else of the trial itself. */
function attemptOf(slot: Slot, earlier: readonly TrialRecord[]): number {
  const same = earlier.filter((record) =>
    slot.phase === 'measured'
      ? record.slot.block === slot.block
      : record.slot.phase === slot.phase && record.slot.arm === slot.arm && record.slot.item === slot.item,
  );
  return 1 + Math.max(0, ...same.map(({ attempt }) => attempt));
}

async function draftsIn(path: string): Promise<number> {
  const names = [...(await readdir(path)), ...(await readdir(join(path, 'records')))];
  return names.filter((name) => name.endsWith('.tmp')).length;
}
