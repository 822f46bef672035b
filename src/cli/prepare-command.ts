import { Command } from '@commander-js/extra-typings';
import { nativeLowBitRows } from '../backend/cpu/low-bit-rows.js';
import { nativeTransposer } from '../backend/cpu/native-transpose.js';
import { formatByteSize } from '../base/byte-size.js';
import { resolveModel } from '../checkpoint/hub.js';
import { lowBitPlan, openLowBit } from '../checkpoint/low-bit-model.js';
import { openOrPrepare } from '../checkpoint/open-or-prepare.js';
import { verifyDerived } from '../checkpoint/verify-derived.js';
import { prepareLabels } from '../generate/session.js';
import { flags } from './flags.js';
import { Progress } from './progress.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';

/** `waybill prepare`: packs a checkpoint ahead of its first run, or checks what was packed. */
export function prepareCommand() {
  return new Command('prepare')
    .addOption(flags.model())
    .addOption(flags.revision())
    .addOption(flags.prepared())
    .option('--verify', 'hash every source file and every prepared tensor')
    .addOption(flags.lowBit())
    .addOption(flags.json())
    .addOption(flags.quiet())
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const { signal, dispose } = interruption();
      try {
        const { directory } = await resolveModel(given.model, {
          revision: given.revision,
          signal,
          onProgress: ({ file, doneBytes, totalBytes }) =>
            progress.bytes(`downloading ${file}`, doneBytes, totalBytes),
        });
        const { prepared, preparedNow, notes } = await openOrPrepare(directory, {
          directory: given.prepared,
          verify: given.verify,
          signal,
          onProgress: (done, total, phase) => progress.bytes(prepareLabels[phase], done, total),
          onWait: ({ pid }) =>
            terminal.note(`note: waiting for process ${pid}, which prepares the same checkpoint`),
        });
        const derived =
          given.verify === true
            ? await verifyDerived(prepared, {
                signal,
                onProgress: (done, total) => progress.bytes('verifying derived weights', done, total),
              })
            : [];
        const waiting = ({ pid }: { readonly pid: number }) =>
          terminal.note(`note: waiting for process ${pid}, which prepares the same low-bit copies`);
        const lowBit =
          given.lowBit === undefined
            ? null
            : await openLowBit(prepared, await lowBitPlan(prepared, given.lowBit), {
                verify: given.verify,
                signal,
                makeRows: nativeLowBitRows(),
                readTransposed: nativeTransposer(),
                onProgress: (done, total) => progress.bytes('preparing low-bit copies', done, total),
                onWait: waiting,
              });
        progress.stop();
        for (const note of notes) terminal.note(`note: ${note}`);
        const { byteLength } = prepared.weightsFile;
        terminal.print(
          `${preparedNow ? 'prepared' : 'was prepared'}: ${prepared.directory} (${formatByteSize(byteLength)}, manifest ${prepared.manifestDigest})\n`,
        );
        for (const { name, byteLength: bytes, tensors } of derived) {
          terminal.print(`verified: ${name} (${tensors} matrices, ${formatByteSize(bytes)})\n`);
        }
        if (lowBit !== null) {
          terminal.print(
            `low-bit copies "${lowBit.plan.name}": ${lowBit.writtenNow ? 'written' : 'were there'} (${lowBit.plan.choices.size} matrices, ${formatByteSize(lowBit.byteLength)} with their rows, manifest ${lowBit.manifestDigest})\n`,
          );
        }
        if (terminal.json) {
          terminal.printJson({
            directory: prepared.directory,
            preparedNow,
            byteLength: BigInt(byteLength),
            manifestDigest: prepared.manifestDigest,
            sourceDigest: prepared.sourceDigest,
            notes,
            ...(given.verify === true
              ? { derived: derived.map((one) => ({ ...one, byteLength: BigInt(one.byteLength) })) }
              : {}),
            ...(lowBit === null
              ? {}
              : {
                  lowBit: {
                    name: lowBit.plan.name,
                    writtenNow: lowBit.writtenNow,
                    byteLength: BigInt(lowBit.byteLength),
                    manifestDigest: lowBit.manifestDigest,
                  },
                }),
          });
        }
        await lowBit?.close();
        await prepared.close();
      } finally {
        progress.stop();
        dispose();
      }
    });
}
