import { readFile } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import { fileDigest } from '../base/digest.js';
import { InputError, SetupError, TamperedError } from '../base/errors.js';
import { resolveModel } from '../checkpoint/hub.js';
import { openTokenizer } from '../checkpoint/tokenizer.js';
import { checkPrompts } from '../generate/generation.js';
import { closePlan, planSession, type SessionPlan } from '../generate/session.js';
import type { SessionHooks } from '../generate/session-options.js';
import { programSubject } from '../receipt/program.js';
import { checkFrozen } from './freeze.js';
import { supersededProtocols } from './protocol-chain.js';
import { type ProtocolFile, parseProtocol } from './protocol-file.js';
import { type Arm, allArms, type Protocol } from './protocol-schema.js';
import type { Manifest } from './record-format.js';
import { armSessionOptions } from './session-driver.js';
import { type Items, readItems } from './workload.js';

/** Everything that is known and checked before a run's folder is made. */
export interface RunSetup {
  readonly file: ProtocolFile;
  readonly protocolBytes: Uint8Array;
  /** Arms as they will be run: in an A/A run all as the first one. */
  readonly arms: ReadonlyMap<string, Arm>;
  /** The model's folder; null where no arm needs one. */
  readonly model: string | null;
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
  readonly model?: string | undefined;
  readonly variant: Manifest['variant'];
}

/**
 * Reads and checks a frozen protocol and everything it names: what it supersedes, the program's version, the model by
 * digest, prompts, a plan for every arm within its allowance.
 * @throws InputError, UsageError; SetupError, BudgetError; TamperedError for digests that do not hold
 */
export async function prepareRun(request: SetupRequest, hooks: SessionHooks = {}): Promise<RunSetup> {
  const protocolBytes = await readFile(request.protocolPath).catch((cause: Error) => {
    throw new InputError(
      'unreadable-file',
      `Cannot read the protocol "${request.protocolPath}": ${cause.message}`,
      {},
      { cause },
    );
  });
  const file = parseProtocol(protocolBytes, request.protocolPath);
  const { protocol } = file;
  const folder = resolve(request.folder ?? join(request.protocolPath, '..'));
  checkFrozen(file);
  await supersededProtocols(file, folder);
  const subject = programSubject();
  checkProgram(protocol, subject.name);
  const arms = armsOf(protocol, request.variant);
  const subjects: Manifest['subjects'] = {};
  let model: string | null = null;
  let items: Items | null = null;
  if (protocol.model !== undefined) {
    const place = request.model ?? besides(folder, protocol.model.path);
    model = (await resolveModel(place)).directory;
    items = await readItems(protocol, folder, await openTokenizer(model).catch(() => null));
  }
  items ??= await readItems(protocol, folder, null);
  for (const arm of arms.values()) {
    subjects[arm.name] =
      arm.kind === 'session'
        ? await checkSessionArm(protocol, arm, model!, items, hooks)
        : await Promise.all(
            arm.files.map(async (name) => ({ name, sha256: await digestOf(besides(folder, name)) })),
          );
  }
  const program = { name: subject.name, sha256: subject.digest.sha256 };
  return { file, protocolBytes, arms, model, folder, items, program, subjects };
}

function armsOf(protocol: Protocol, variant: Manifest['variant']): Map<string, Arm> {
  const [first] = protocol.arms;
  return new Map(
    allArms(protocol).map((arm) => {
      const measured = protocol.arms.includes(arm);
      return [arm.name, variant === 'aa' && measured ? { ...first!, name: arm.name } : arm];
    }),
  );
}

/** Plans the arm, which refuses what does not fit, and gives its subjects. */
async function checkSessionArm(
  protocol: Protocol,
  arm: Arm & { kind: 'session' },
  model: string,
  items: Items,
  hooks: SessionHooks,
): Promise<Manifest['subjects'][string]> {
  const plan: SessionPlan = await planSession(armSessionOptions(arm, model), hooks);
  try {
    const { prepared, kvShape } = plan;
    const wanted = protocol.model!.sourceDigest;
    if (prepared.sourceDigest !== wanted) {
      throw new TamperedError(
        'model-changed',
        `Cannot run the protocol on "${model}": the digest of its files is ${prepared.sourceDigest}, the protocol wants ${wanted}`,
        { found: prepared.sourceDigest, wanted },
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
    ];
  } finally {
    await closePlan(plan);
  }
}

/** @throws SetupError `program-outside-range` */
function checkProgram({ program }: Protocol, name: string): void {
  if (program === 'any') return;
  const version = name.slice(name.lastIndexOf('@') + 1);
  const within =
    compareVersions(version, program.atLeast) >= 0 && compareVersions(version, program.below) < 0;
  if (within) return;
  throw new SetupError(
    'program-outside-range',
    `Cannot run the protocol with version ${version}: it wants at least ${program.atLeast} and below ${program.below}`,
    { version, ...program },
  );
}

/** Order of versions by their three numbers; what follows a "-" is not looked at. */
function compareVersions(a: string, b: string): number {
  const numbers = (text: string): number[] => text.split('-')[0]!.split('.').map(Number);
  const [left, right] = [numbers(a), numbers(b)];
  for (let place = 0; place < 3; place++) {
    const difference = (left[place] ?? 0) - (right[place] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** SHA-256 of a file. @throws InputError `unreadable-file` */
async function digestOf(path: string): Promise<string> {
  try {
    return await fileDigest(path);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new InputError('unreadable-file', `Cannot read "${path}": ${reason}`, { path }, { cause });
  }
}

function besides(folder: string, path: string): string {
  return isAbsolute(path) ? path : join(folder, path);
}
