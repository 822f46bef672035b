#!/usr/bin/env node
import { existsSync } from 'node:fs';

const entry = new URL('../dist/cli/main.js', import.meta.url);
if (existsSync(entry)) {
  const { main } = await import(entry.href);
  await main(process.argv);
} else {
  process.stderr.write('Cannot start waybill: it is not built; run "npm run build" in its folder\n');
  process.exitCode = 3;
}
