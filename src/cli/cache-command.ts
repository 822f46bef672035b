import { Command } from '@commander-js/extra-typings';
import { formatByteSize } from '../base/byte-size.js';
import { listCache, removeFromCache } from '../checkpoint/cache-listing.js';
import { plainTable } from './plain-table.js';
import { openTerminal } from './terminal.js';

/** `waybill cache ls|rm`. */
export function cacheCommand() {
  const cache = new Command('cache');
  cache
    .command('ls')
    .description('list what the Hugging Face home holds for Waybill')
    .option('--json', 'print one JSON object')
    .action(async (options) => {
      const terminal = openTerminal(options);
      const { entries, byteLength } = await listCache();
      const table = plainTable(['kind', 'name', 'size', 'changed']);
      for (const { kind, name, byteLength: bytes, modified } of entries) {
        table.push([kind, name, formatByteSize(bytes), modified.toISOString()]);
      }
      terminal.print(
        entries.length === 0
          ? 'nothing is cached\n'
          : `${table.toString()}\n${formatByteSize(byteLength)} in all\n`,
      );
      if (terminal.json) {
        const list = entries.map((entry) => ({ ...entry, byteLength: BigInt(entry.byteLength) }));
        terminal.printJson({ entries: list, byteLength: BigInt(byteLength) });
      }
    });
  cache
    .command('rm')
    .description('remove one entry')
    .argument('<name>', 'hub model (org/name), or digest of a prepared model (its first eight digits do)')
    .option('--json', 'print one JSON object')
    .action(async (name, options) => {
      const terminal = openTerminal(options);
      const removed = await removeFromCache(name);
      terminal.print(`removed ${removed.name} (${formatByteSize(removed.byteLength)})\n`);
      if (terminal.json) terminal.printJson({ ...removed, byteLength: BigInt(removed.byteLength) });
    });
  return cache;
}
