import { isAbsolute, join } from 'node:path';
import { parseByteSize } from '../base/byte-size.js';
import { UsageError, WaybillError } from '../base/errors.js';
import { type SessionOptions, sessionOptions } from '../generate/session-options.js';
import type { Protocol, SessionArm } from './protocol-schema.js';
import { allArms } from './protocol-schema.js';
import { recorderRoomBytes } from './recorder-room.js';

/** Where what an arm names lies on this machine. */
export interface ArmPlaces {
  /** Folder of its checkpoint. */
  readonly model: string;
  /** The protocol's own folder, which other paths are seen from. */
  readonly folder: string;
}

/** Session options that an arm states under a name of its own, or that are no part of a protocol. */
const statedElsewhere: readonly string[] = [
  'model',
  'revision',
  'prepared',
  'backend',
  'kernels',
  'threads',
  'device',
  'budgetBytes',
  'hostBudgetBytes',
  'policy',
  'retain',
  'profile',
  'forecast',
  'numerics',
  'kv',
  'contextPositions',
  'clampContext',
  'slots',
  'prefillChunk',
  'logitsRows',
];

/** The session options that an arm states. The recorder's room is inside the arm's allowance. */
export function armSessionOptions(
  arm: SessionArm,
  { model, folder }: ArmPlaces,
): Partial<SessionOptions> & { model: string } {
  const { profile } = arm;
  return {
    model,
    policy: arm.policy,
    backend: arm.backend,
    kernels: arm.kernels,
    threads: arm.threads,
    kv: arm.kv,
    budgetBytes: Math.max(0, limitOf(arm.budget) - recorderRoomBytes),
    ...(arm.hostBudget === undefined ? {} : { hostBudgetBytes: limitOf(arm.hostBudget) }),
    ...(arm.retain === undefined ? {} : { retain: arm.retain }),
    ...(profile === undefined ? {} : { profile: besides(folder, profile.file) }),
    ...(arm.forecast === undefined ? {} : { forecast: arm.forecast }),
    ...(arm.numerics !== undefined && sessionOptionNames().includes('numerics')
      ? { numerics: arm.numerics }
      : {}),
    contextPositions: arm.contextPositions,
    prefillChunk: arm.prefillChunk,
    ...arm.options,
  };
}

/** A path of a protocol, seen from its folder. */
export function besides(folder: string, path: string): string {
  return isAbsolute(path) ? path : join(folder, path);
}

/**
 * Checks what session arms say under `options`, and the ranges of everything else that a session checks itself.
 * @throws UsageError `bad-arm-option` naming the arm
 */
export function checkArmOptions(protocol: Protocol): void {
  for (const arm of allArms(protocol)) {
    if (arm.kind !== 'session') continue;
    const refuse = (problem: string, cause?: unknown): UsageError =>
      new UsageError(
        'bad-arm-option',
        `Cannot use arm "${arm.name}": ${problem}`,
        { arm: arm.name },
        { cause },
      );
    for (const name of Object.keys(arm.options ?? {})) {
      if (statedElsewhere.includes(name))
        throw refuse(`its option "${name}" has a place of its own in an arm, or none in a protocol`);
      if (!sessionOptionNames().includes(name)) {
        const known = sessionOptionNames().filter((option) => !statedElsewhere.includes(option));
        throw refuse(
          `a session has no option "${name}"${known.length === 0 ? '' : `, want one of ${known.join(', ')}`}`,
        );
      }
    }
    try {
      sessionOptions(armSessionOptions(arm, { model: '-', folder: '.' }));
    } catch (error) {
      if (!(error instanceof WaybillError)) throw error;
      throw refuse(error.message, error);
    }
  }
}

/** Names of all options of a session, as the library knows them. */
function sessionOptionNames(): string[] {
  return Object.keys(sessionOptions({ model: '-' }));
}

function limitOf(size: string): number {
  return size === 'none' ? Infinity : parseByteSize(size);
}
