// Runs a protocol in a process that a test kills: arguments are protocol, run folder, lease folder.
import { runProtocol } from '../../../dist/lab/runner.js';

const [protocolPath, runPath, leaseFolder] = process.argv.slice(2);
await runProtocol(
  { protocolPath, runPath, leaseFolder },
  { onTrial: (_, done) => process.stdout.write(`trial ${done}\n`) },
);
process.stdout.write('done\n');
