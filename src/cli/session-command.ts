import { Command } from '@commander-js/extra-typings';
import { flags } from './flags.js';

/** A command that opens a session, or plans one: the flags that all of these have. Its own ones come behind. */
export function sessionCommand(name: string) {
  return new Command(name)
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .addOption(flags.budget())
    .addOption(flags.policy())
    .addOption(flags.retain())
    .addOption(flags.profile())
    .addOption(flags.forecast())
    .addOption(flags.guesser())
    .addOption(flags.lowBit())
    .addOption(flags.streamLayout())
    .addOption(flags.backend())
    .addOption(flags.kernels())
    .addOption(flags.numerics())
    .addOption(flags.threads())
    .addOption(flags.device())
    .addOption(flags.hostBudget())
    .addOption(flags.kv())
    .addOption(flags.ctxSize())
    .addOption(flags.prefillChunk())
    .addOption(flags.json())
    .addOption(flags.quiet());
}
