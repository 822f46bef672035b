import { fileURLToPath } from 'node:url';
import { builtModule } from '../base/built-module.js';
import type { ArmDriver } from './arm-driver.js';
import { openCommandArm } from './command-driver.js';
import type { Arm, Protocol } from './protocol-schema.js';
import type { RunSetup } from './run-setup.js';
import { openSessionArm } from './session-driver.js';

/** Sets an arm up: a session in this process or in one of its own, or somebody's program. */
export async function openArm(
  arm: Arm,
  { model, folder }: Pick<RunSetup, 'model' | 'folder'>,
  isolation: Protocol['isolation'],
  signal: AbortSignal,
): Promise<ArmDriver> {
  if (arm.kind === 'command') {
    const command = arm.command.map((word) =>
      word.replaceAll('{model}', model ?? '').replaceAll('{protocol}', folder),
    );
    return openCommandArm(
      { arm: arm.name, command, directory: folder, timeoutMs: arm.timeoutSeconds * 1000 },
      signal,
    );
  }
  if (isolation === 'shared-process') return openSessionArm(arm, model!, signal);
  const script = fileURLToPath(builtModule('lab/trial-process.js'));
  const command = [process.execPath, script, JSON.stringify(arm), model!];
  return openCommandArm({ arm: arm.name, command, directory: folder, timeoutMs: null }, signal);
}
