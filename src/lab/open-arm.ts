import { fileURLToPath } from 'node:url';
import { builtModule } from '../base/built-module.js';
import type { ArmDriver } from './arm-driver.js';
import { openCommandArm } from './command-driver.js';
import type { LiveArm, Protocol } from './protocol-schema.js';
import type { RunSetup } from './run-setup.js';
import { openSessionArm } from './session-driver.js';

/** Sets an arm up: a session in this process or in one of its own, or somebody's program. */
export async function openArm(
  arm: LiveArm,
  { models, folder }: Pick<RunSetup, 'models' | 'folder'>,
  isolation: Protocol['isolation'],
  signal: AbortSignal,
): Promise<ArmDriver> {
  const model = models.get(arm.name) ?? null;
  if (arm.kind === 'command') {
    const command = arm.command.map((word) =>
      word.replaceAll('{model}', model ?? '').replaceAll('{protocol}', folder),
    );
    return openCommandArm(
      { arm: arm.name, command, directory: folder, timeoutMs: arm.timeoutSeconds * 1000 },
      signal,
    );
  }
  if (isolation === 'shared-process') return openSessionArm(arm, { model: model!, folder }, signal);
  const script = fileURLToPath(builtModule('lab/trial-process.js'));
  const command = [process.execPath, script, JSON.stringify(arm), model!, folder];
  return openCommandArm({ arm: arm.name, command, directory: folder, timeoutMs: null }, signal);
}
