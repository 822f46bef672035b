import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';

/** Names one process for good: a pid alone is given to another process later. */
export interface ProcessIdentity {
  readonly host: string;
  readonly pid: number;
  /** Start time in clock ticks since boot with the boot's id (Linux), else null: there only the pid is compared. */
  readonly started: string | null;
}

export function thisProcess(): ProcessIdentity {
  return { host: hostname(), pid: process.pid, started: startTime(process.pid) };
}

/** An identity short enough for a file name: digests of host and start time around the pid. */
export function processTag({ host, pid, started }: ProcessIdentity): string {
  return `${shortDigest(host)}-${pid}-${shortDigest(started ?? '')}`;
}

/** As `isAlive`, for a tag; what is no tag counts as alive. */
export function isTagAlive(tag: string): boolean {
  const match = /^([0-9a-f]{8})-(\d+)-([0-9a-f]{8})$/.exec(tag);
  if (match === null || match[1] !== shortDigest(hostname())) return true;
  const pid = Number(match[2]);
  return exists(pid) && match[3] === shortDigest(startTime(pid) ?? '');
}

function shortDigest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}

/** False only where the process is known to have ended; processes of other hosts cannot be asked and count as alive. */
export function isAlive(identity: ProcessIdentity): boolean {
  if (identity.host !== hostname()) return true;
  if (!exists(identity.pid)) return false;
  const started = startTime(identity.pid);
  return identity.started === null || started === null || identity.started === started;
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it exists and belongs to somebody else.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** `/proc/<pid>/stat` field 22 (proc(5)); the second field may hold spaces and parentheses, so it is cut off first. */
function startTime(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return ticks === undefined ? null : `${boot}/${ticks}`;
  } catch {
    return null;
  }
}
