import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { BackendInfo } from '../backend/backend.js';
import { zonedTime } from '../base/clock.js';
import { fileDigest } from '../base/digest.js';
import { InputError, SetupError, TamperedError } from '../base/errors.js';
import { failureReason } from '../base/failure-reason.js';
import { resolveModel } from '../checkpoint/hub.js';
import { openTokenizer } from '../checkpoint/tokenizer.js';
import { checkPrompts } from '../generate/generation.js';
import { closePlan, planSession, type SessionPlan } from '../generate/session.js';
import type { SessionHooks } from '../generate/session-options.js';
import { programSubject } from '../receipt/program.js';
import { type BorrowedTrials, borrowTrials, referenceSubjects } from './archived-reference.js';
import { armSessionOptions, besides, checkArmOptions } from './arm-session.js';
import { checkFrozen } from './freeze.js';
import { programProblem } from './program-range.js';
import { supersededProtocols } from './protocol-chain.js';
import { type ProtocolFile, parseProtocol } from './protocol-file.js';
import { type Arm, allArms, type Protocol, type SessionArm } from './protocol-schema.js';
import type { Manifest } from './record-format.js';
import { type Items, readItems } from './workload.js';

/** Everything that is known and checked before a run's folder is made. */
export interface RunSetup {
  readonly file: ProtocolFile;
  readonly protocolBytes: Uint8Array;
  /** Bytes of the protocols that it supersedes, the nearest first. */
  readonly superseded: readonly Uint8Array[];
  /** Arms as they will be run: in an A/A run all as the first one. */
  readonly arms: ReadonlyMap<string, Arm>;
  /** The protocol's model's folder; null where it has none. */
  readonly model: string | null;
  /** The folder of each arm's model. */
  readonly models: ReadonlyMap<string, string>;
  /** Of a reference that an archive holds. */
  readonly borrowed: BorrowedTrials;
  /** The protocol's own folder. */
  readonly folder: string;
  readonly items: Items;
  readonly program: Manifest['program'];
  readonly subjects: Manifest['subjects'];
}

export interface SetupRequest {
  readonly protocolPath: string;
  /** Folder that relative paths of the protocol are seen from; that of the protocol file when nobody says. */
  readonly folder?: string | undefined;
  /** Folder in which superseded protocols are looked for; that of the protocol when nobody says. */
  readonly chainFolder?: string | undefined;
  readonly model?: string | undefined;
  readonly variant: Manifest['variant'];
}

/**
 * Reads and checks a frozen protocol and everything it names: what it supersedes, the program's version, the model by
 * digest, prompts, a plan for every arm within its allowance.
 * @throws InputError, UsageError; SetupError, BudgetError; TamperedError for digests that do not hold
 */
export async function prepareRun(request: SetupRequest, hooks: SessionHooks = {}): Promise<RunSetup> {
  const { bytes: protocolBytes, ...file } = await readProtocolFile(request.protocolPath);
  const { protocol } = file;
  const folder = resolve(request.folder ?? join(request.protocolPath, '..'));
  checkFrozen(file);
  const superseded = await supersededProtocols(file, request.chainFolder ?? folder);
  const subject = programSubject();
  checkProgram(protocol, subject.name);
  checkArmOptions(protocol);
  if (Date.parse(protocol.frozen!.at) > Date.now()) {
    throw new SetupError(
      'frozen-in-the-future',
      `Cannot run the protocol "${request.protocolPath}": it was frozen at ${protocol.frozen!.at}, and the clock says ${zonedTime(Date.now())}`,
      { frozenAt: protocol.frozen!.at },
    );
  }
  const arms = armsOf(protocol, request.variant);
  const model =
    protocol.model === undefined
      ? null
      : await modelFolder(request.model ?? besides(folder, protocol.model.path));
  const items = await readItems(
    protocol,
    folder,
    model === null ? null : await openTokenizer(model).catch(() => null),
  );
  const setup = {
    file,
    protocolBytes,
    superseded: superseded.map(({ bytes }) => bytes),
    arms,
    model,
    models: await modelsOf(arms, model, folder),
    folder,
    items,
    program: { name: subject.name, sha256: subject.digest.sha256 },
  };
  const subjects: Manifest['subjects'] = {};
  let borrowed: BorrowedTrials = new Map();
  for (const arm of arms.values()) {
    if (arm.kind === 'session') subjects[arm.name] = await checkSessionArm(setup, arm, hooks);
    else if (arm.kind === 'command') {
      subjects[arm.name] = await Promise.all(
        arm.files.map(async (name) => ({ name, sha256: await digestOf(besides(folder, name)) })),
      );
    } else {
      const used = Math.min(items.length, protocol.schedule.blocks);
      borrowed = await borrowTrials(protocol, arm, folder, used);
      subjects[arm.name] = referenceSubjects(arm);
    }
  }
  return { ...setup, borrowed, subjects };
}

/** A protocol and its bytes. @throws InputError as `parseProtocol`, `unreadable-file` */
export async function readProtocolFile(path: string): Promise<ProtocolFile & { bytes: Uint8Array }> {
  const bytes = await readFile(path).catch((cause: Error) => {
    throw new InputError(
      'unreadable-file',
      `Cannot read the protocol "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  });
  return { ...parseProtocol(bytes, path), bytes };
}

async function modelFolder(place: string): Promise<string> {
  return (await resolveModel(place)).directory;
}

/** Arms have the protocol's model, or one of their own, whatever `--model` says of the former. */
async function modelsOf(
  arms: ReadonlyMap<string, Arm>,
  model: string | null,
  folder: string,
): Promise<Map<string, string>> {
  const models = new Map<string, string>();
  for (const arm of arms.values()) {
    const own = arm.kind === 'session' ? arm.model : undefined;
    const place = own === undefined ? model : await modelFolder(besides(folder, own.path));
    if (place !== null) models.set(arm.name, place);
  }
  return models;
}

function armsOf(protocol: Protocol, variant: Manifest['variant']): Map<string, Arm> {
  // No gate is judged in an A/A run, so nobody needs its logits
  const first: Arm = { ...protocol.arms[0]!, keepLogits: false };
  return new Map(
    allArms(protocol).map((arm) => {
      const measured = protocol.arms.some((own) => own === arm);
      return [arm.name, variant === 'aa' && measured ? { ...first, name: arm.name } : arm];
    }),
  );
}

/** Plans the arm, which refuses what does not fit, and gives its subjects. */
async function checkSessionArm(
  { file, models, folder, items }: Pick<RunSetup, 'file' | 'models' | 'folder' | 'items'>,
  arm: SessionArm,
  hooks: SessionHooks,
): Promise<Manifest['subjects'][string]> {
  const { protocol } = file;
  const model = models.get(arm.name)!;
  const profile = await profileSubjects(arm, folder);
  const plan: SessionPlan = await planSession(armSessionOptions(arm, { model, folder }), hooks);
  try {
    const { prepared, kvShape, backend } = plan;
    const wanted = (arm.model ?? protocol.model!).sourceDigest;
    if (prepared.sourceDigest !== wanted) {
      throw new TamperedError(
        'model-changed',
        `Cannot run the protocol on "${model}": the digest of its files is ${prepared.sourceDigest}, the protocol wants ${wanted}`,
        { found: prepared.sourceDigest, wanted },
      );
    }
    if (arm.numerics !== undefined && backend.info.numerics !== arm.numerics) {
      throw new SetupError(
        'numerics-not-available',
        `Cannot run arm "${arm.name}": its backend computes in ${backend.info.numerics} numerics, the protocol wants ${arm.numerics}`,
        { arm: arm.name, numerics: backend.info.numerics },
      );
    }
    const prompts = items.flat();
    checkPrompts(prompts, { capacity: kvShape.capacity, vocabSize: prepared.description.config.vocabSize });
    const longest = Math.max(...prompts.map(({ length }) => length)) + protocol.workload.newTokens - 1;
    if (longest > kvShape.capacity) {
      throw new InputError(
        'context-too-short',
        `Cannot run arm "${arm.name}": an episode needs ${longest} positions, its context has ${kvShape.capacity}`,
        { arm: arm.name, longest, positions: kvShape.capacity },
      );
    }
    return [
      ...prepared.sourceFiles.map(({ name, sha256 }) => ({ name: `checkpoint/${name}`, sha256 })),
      { name: 'prepared/manifest.json', sha256: prepared.manifestDigest },
      ...kernelSubjects(backend.info),
      ...profile,
    ];
  } finally {
    await closePlan(plan);
  }
}

/** Machine code, or the sources that it is compiled from, by digest; of plain TypeScript there is none beside the program. */
function kernelSubjects({ kernels, kernelDigest }: BackendInfo): Manifest['subjects'][string] {
  if (kernelDigest === null) return [];
  return [{ name: `kernels/${kernels.replaceAll(' ', '-')}`, sha256: kernelDigest }];
}

/** The profile that an arm names, by digest. @throws TamperedError `profile-changed` */
async function profileSubjects(
  { name, profile }: SessionArm,
  folder: string,
): Promise<Manifest['subjects'][string]> {
  if (profile === undefined) return [];
  const found = await digestOf(besides(folder, profile.file));
  if (found === profile.sha256) return [{ name: 'profile', sha256: found }];
  throw new TamperedError(
    'profile-changed',
    `Cannot run arm "${name}": its profile "${profile.file}" has SHA-256 ${found}, the protocol wants ${profile.sha256}`,
    { found, wanted: profile.sha256 },
  );
}

/** @throws SetupError `program-outside-range` */
function checkProgram(protocol: Protocol, name: string): void {
  const problem = programProblem(protocol, name);
  if (problem === null) return;
  throw new SetupError('program-outside-range', `Cannot run the protocol with this program: ${problem}`, {
    program: name,
  });
}

/** SHA-256 of a file. @throws InputError `unreadable-file` */
async function digestOf(path: string): Promise<string> {
  try {
    return await fileDigest(path);
  } catch (cause) {
    throw new InputError(
      'unreadable-file',
      `Cannot read "${path}": ${failureReason(cause)}`,
      { path },
      { cause },
    );
  }
}
