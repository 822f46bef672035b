import { Command } from '@commander-js/extra-typings';
import { writeFileAtomic } from '../base/atomic-file.js';
import { zonedTime } from '../base/clock.js';
import { UsageError } from '../base/errors.js';
import { checkArmOptions } from '../lab/arm-session.js';
import { freezeProtocol } from '../lab/freeze.js';
import { type ProtocolChange, protocolChanges } from '../lab/protocol-chain.js';
import { parseProtocol } from '../lab/protocol-file.js';
import { readProtocolFile } from '../lab/run-setup.js';
import { flags } from './flags.js';
import { openTerminal } from './terminal.js';

/** `waybill lab freeze`: the protocol with its digest, in a new file. */
export function labFreezeCommand() {
  return new Command('freeze')
    .description('freeze a protocol: check it and write a copy that holds its digest')
    .argument('<draft>', 'protocol (.yaml)')
    .option('-o, --out <file>', 'frozen protocol to write (default: <draft>.frozen.yaml)')
    .option('--supersedes <file>', 'frozen protocol that this one takes the place of')
    .option('--reason <text>', 'why it does')
    .addOption(flags.json())
    .action(async (draft, given) => {
      const terminal = openTerminal(given);
      const file = await readProtocolFile(draft);
      checkArmOptions(file.protocol);
      if ((given.supersedes === undefined) !== (given.reason === undefined)) {
        throw new UsageError('bad-option', 'Cannot use --supersedes and --reason alone: give both or none');
      }
      const earlier = given.supersedes === undefined ? null : await readProtocolFile(given.supersedes);
      const supersession = earlier === null ? null : { earlier, reason: given.reason! };
      const text = freezeProtocol(file, zonedTime(Date.now()), supersession);
      const out = given.out ?? `${draft.replace(/\.ya?ml$/, '')}.frozen.yaml`;
      await writeFileAtomic(out, text, { replace: false });
      const frozen = parseProtocol(Buffer.from(text, 'utf8'), out);
      const changes = earlier === null ? [] : protocolChanges(earlier, frozen);
      terminal.print(`${frozen.digest}  ${out}\n`);
      for (const change of changes) terminal.print(`${changeText(change)}\n`);
      if (terminal.json) terminal.printJson({ file: out, digest: frozen.digest, changes });
    });
}

function changeText({ path, before, after }: ProtocolChange): string {
  const text = (value: unknown): string => (value === undefined ? '(nothing)' : JSON.stringify(value));
  return `  ${path}: ${text(before)} -> ${text(after)}`;
}
