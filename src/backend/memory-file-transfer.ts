import { read } from 'node:fs';
import { ExecutionError } from '../base/errors.js';
import type { Transfer, TransferReport } from './backend.js';

/** Beyond 16 reads in flight, cold rows of 4 to 20 KB came no faster. */
const readsInFlight = 16;

/**
 * Positioned reads of file regions into memory that JavaScript can address; `bytesOf` gives the bytes of a
 * transfer's target and is called once for each before anything is read. After a failure no further read starts and
 * the promise rejects once those in flight have ended, so that nothing is written later.
 * Rejects with `ExecutionError` `short-read` or `read-failed`.
 */
export async function transferIntoMemory(
  transfers: readonly Transfer[],
  bytesOf: (transfer: Transfer) => Uint8Array,
): Promise<TransferReport> {
  const start = process.hrtime.bigint();
  const targets = transfers.map(bytesOf);
  let requestedBytes = 0;
  for (const target of targets) requestedBytes += target.byteLength;
  let next = 0;
  let failed = false;
  const reader = async (): Promise<void> => {
    while (!failed && next < transfers.length) {
      const index = next++;
      try {
        await readWhole(transfers[index]!, targets[index]!);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const readers = Array.from({ length: Math.min(readsInFlight, transfers.length) }, reader);
  const outcomes = await Promise.allSettled(readers);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  return { requestedBytes, elapsedNs: process.hrtime.bigint() - start };
}

/** A read may give fewer bytes than asked for before the end of the file, so it is repeated for the rest. */
async function readWhole(transfer: Transfer, target: Uint8Array): Promise<void> {
  let done = 0;
  while (done < target.byteLength) {
    const count = await readSome(transfer, target, done);
    if (count === 0) {
      throw failure(transfer, target, 'short-read', `the file ended after ${done} of them`);
    }
    done += count;
  }
}

function readSome(transfer: Transfer, target: Uint8Array, done: number): Promise<number> {
  const { file, position } = transfer;
  return new Promise((resolve, reject) => {
    read(file.descriptor, target, done, target.byteLength - done, position + done, (error, count) => {
      if (error === null) resolve(count);
      else reject(failure(transfer, target, 'read-failed', error.message, error));
    });
  });
}

function failure(
  { file, position }: Transfer,
  target: Uint8Array,
  code: string,
  reason: string,
  cause?: Error,
): ExecutionError {
  return new ExecutionError(
    code,
    `Cannot read ${target.byteLength} bytes at ${position} of "${file.path}": ${reason}`,
    { path: file.path, position: String(position), byteLength: String(target.byteLength) },
    cause === undefined ? undefined : { cause },
  );
}
