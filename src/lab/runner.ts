import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { zonedTime } from '../base/clock.js';
import { exitCodes, InputError, TamperedError, UsageError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import type { SessionHooks } from '../generate/session-options.js';
import { type Evaluation, evaluateRun } from './evaluation.js';
import { weightiestExitCode } from './exit-codes.js';
import { defaultLeaseFolder, gpuResource, type Lease, processorResources, takeLease } from './lease.js';
import { runEnvironment } from './machine-state.js';
import { plannedSlots } from './planned-slots.js';
import { allArms, type Protocol } from './protocol-schema.js';
import type { RunData } from './read-run.js';
import {
  type EndedRecord,
  type Manifest,
  runFiles,
  runFormat,
  type Slot,
  type TrialRecord,
} from './record-format.js';
import { RunFolder, readRunFolder } from './run-folder.js';
import { prepareRun, type RunSetup } from './run-setup.js';
import { resumePoint, selectTrials, slotsFrom } from './selection.js';
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
}

export interface ResumeRequest {
  readonly runPath: string;
  readonly model?: string | undefined;
  readonly leaseFolder?: string | undefined;
}

const localSchema = z.strictObject({ model: z.string().nullable(), folder: z.string() });

/**
 * Runs a frozen protocol into a new folder and judges it from what is on the disk. Stops at the first differing logit,
 * at a failure and at an abort; the records stay in each case.
 * @throws as `prepareRun`, `takeLease` and `RunFolder`; what goes wrong inside a trial is in its record
 */
export async function runProtocol(request: RunRequest, hooks: RunHooks = {}): Promise<Evaluation> {
  const variant = request.variant ?? 'measured';
  const setup = await prepareRun({ ...request, variant }, hooks);
  const lease = await takeLease(
    resourcesOf(setup.file.protocol),
    request.leaseFolder ?? defaultLeaseFolder(),
  );
  try {
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
      environment: runEnvironment(lease.resources),
    };
    const local = JSON.stringify({
      model: setup.model === null ? null : resolve(setup.model),
      folder: setup.folder,
    });
    const folder = await RunFolder.create(request.runPath, {
      protocol: setup.protocolBytes,
      salt: salt.toString('hex'),
      local,
      manifest,
    });
    const runner = new TrialRunner(setup, salt, 0, hooks.signal ?? new AbortController().signal);
    return await execute(
      { setup, folder, runner, lease, slots: manifest.slots, manifest, earlier: [] },
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
  const lease = await takeLease(resourcesOf(protocol), request.leaseFolder ?? defaultLeaseFolder());
  try {
    const { folder, run, salt, local } = await RunFolder.open(request.runPath);
    const { manifest, records } = run;
    const selection = selectTrials(manifest, records);
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
    await folder.append({
      format: runFormat,
      kind: 'resumed',
      at: zonedTime(Date.now()),
      nextSlot: next,
      brokenBlock: broken,
      environment: runEnvironment(lease.resources),
    });
    const earlier = records.filter((record) => record.kind === 'trial');
    const processes = 1 + Math.max(-1, ...earlier.map((record) => record.process));
    const signal = hooks.signal ?? new AbortController().signal;
    const runner = new TrialRunner(setup, Buffer.from(salt, 'hex'), processes, signal);
    for (const record of selection.judged) runner.expect(record);
    const slots = slotsFrom(manifest.slots, next);
    return await execute({ setup, folder, runner, lease, slots, manifest, earlier }, hooks);
  } finally {
    await lease.release();
  }
}

function resourcesOf(protocol: Protocol): string[] {
  const onGpu = allArms(protocol).some((arm) => arm.kind === 'session' && arm.backend === 'cuda');
  return [...processorResources(), ...(onGpu ? [gpuResource()] : [])];
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
  readonly slots: readonly Slot[];
  readonly manifest: Manifest;
  readonly earlier: readonly TrialRecord[];
}

async function execute(execution: Execution, hooks: RunHooks): Promise<Evaluation> {
  const { setup, folder, runner, lease } = execution;
  const residentBefore = process.memoryUsage.rss();
  let outcome: Pick<EndedRecord, 'status' | 'error'>;
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
    },
  });
  // Judged from the disk, as anybody else would
  const run = await readRunFolder(folder.path);
  const evaluation = evaluateRun(setup.file.protocol, run.manifest, run.records);
  if (outcome.status !== 'interrupted') return evaluation;
  return { ...evaluation, exitCode: weightiestExitCode([evaluation.exitCode, exitCodes.interrupted]) };
}

async function runSlots(
  { folder, runner, slots, earlier }: Execution,
  hooks: RunHooks,
): Promise<Pick<EndedRecord, 'status' | 'error'>> {
  for (const [index, slot] of slots.entries()) {
    if (hooks.signal?.aborted === true) return { status: 'interrupted', error: null };
    hooks.onTrial?.(slot, index, slots.length);
    const record = await runner.run(slot, attemptOf(slot, earlier));
    const written = await folder.append(record);
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
