import { Command } from '@commander-js/extra-typings';
import { writeFilesAtomic } from '../base/atomic-files.js';
import { generateKeyPair } from '../receipt/dsse.js';
import { openTerminal } from './terminal.js';

/** `waybill keygen`: an Ed25519 pair for signing receipts. */
export function keygenCommand() {
  return new Command('keygen')
    .argument('<name>', 'writes <name>.pem (private, mode 0600) and <name>.pub.pem')
    .option('--json', 'print one JSON object')
    .action(async (name, options) => {
      const terminal = openTerminal(options);
      const pair = generateKeyPair();
      const files = { privateKey: `${name}.pem`, publicKey: `${name}.pub.pem` };
      await writeFilesAtomic(
        [
          { path: files.privateKey, text: pair.privatePem, mode: 0o600 },
          { path: files.publicKey, text: pair.publicPem },
        ],
        { replace: false },
      );
      terminal.print(
        `private key: ${files.privateKey} (keep it)\npublic key:  ${files.publicKey} (give it away)\n`,
      );
      if (terminal.json) terminal.printJson(files);
    });
}
