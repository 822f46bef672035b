// Prepares a checkpoint in a process of its own. Arguments: a JSON object with
//   sources    folder of the compiled sources
//   model, directory, bufferBytes   as `openOrPrepare` takes them
//   holdAt     share of the bytes at which to stop inside the progress callback, until `release` exists
// Prints one JSON line an event: held, waiting, done, failed.
import { existsSync, writeSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const { sources, model, directory, bufferBytes, holdAt, release } = JSON.parse(process.argv[2]);
const { openOrPrepare } = await import(pathToFileURL(`${sources}/checkpoint/open-or-prepare.js`).href);
const say = (event) => writeSync(1, `${JSON.stringify(event)}\n`);
const cell = new Int32Array(new SharedArrayBuffer(4));
let held = false;

try {
  const { prepared, preparedNow } = await openOrPrepare(model, {
    directory,
    bufferBytes,
    onWait: (holder) => say({ event: 'waiting', pid: holder.pid }),
    onProgress: (done, total, phase) => {
      if (phase !== 'pack' || holdAt === undefined || held || done < holdAt * total) return;
      held = true;
      say({ event: 'held', doneBytes: done });
      while (!existsSync(release)) Atomics.wait(cell, 0, 0, 10);
    },
  });
  say({ event: 'done', preparedNow, manifestDigest: prepared.manifestDigest });
  await prepared.close();
} catch (error) {
  say({ event: 'failed', name: error.name, code: error.code, message: error.message, data: error.data });
  process.exitCode = 1;
}
