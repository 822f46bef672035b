import { execFile } from 'node:child_process';
import { closeSync, fsyncSync, openSync, statSync } from 'node:fs';
import { promisify } from 'node:util';
import { loadNative } from '../../src/backend/cpu/native-status.js';
import { openCuda } from '../../src/backend/cuda/open-cuda.js';
import { median } from './pass-times.js';
import { Arm, type ArmPlan } from './shape-arm.js';
import { type ShapeName, writeShape } from './shape-model.js';

const run = promisify(execFile);
const gigabyte = 1e9;
const partBytes = 4 * 1024 * 1024;
const promptTokens = 16;
/** Readers at once: as many as loading has, and more, for disks that want a deeper queue; the faster counts. */
const readerCounts = [4, 12] as const;

const arms: readonly ArmPlan[] = [
  { name: 'resident', policy: 'resident', budget: Infinity },
  { name: 'packets regime C', policy: 'phase', budget: 'regime C' },
];

/** Loading of an arm, out of the disk or the page cache, against the slower of what brings the bytes. */
export interface LoadTime {
  readonly arm: string;
  readonly cold: boolean;
  /** Medians of the rounds, bytes a second: the arm loaded, the file read and thrown away, the link's copies. */
  readonly loadRate: number;
  readonly readRate: number;
  readonly linkRate: number;
  /** Median of the ratios of a round: loaded to the slower of read and link. */
  readonly share: number;
}

/**
 * Loads a shape from a folder's disk, with its file dropped from the page cache before every load and every read (cold),
 * then out of the page cache; loads and reads of the same file take turns. Throws where the cache cannot be emptied.
 */
export async function benchLoad(
  { shape, folder, rounds }: { shape: ShapeName; folder: string; rounds: number },
  log: (line: string) => void,
): Promise<readonly LoadTime[]> {
  const { library, status } = loadNative();
  if (library === null) throw new Error(`Cannot empty the page cache of a file: ${status.reason}`);
  const model = writeShape(shape, Infinity, () => folder);
  try {
    const { weightsFile } = model.prepared;
    fsyncFile(weightsFile.path);
    const evict = (): void => {
      const code = library.evict(weightsFile.descriptor);
      if (code !== 0) throw new Error(`Cannot empty the page cache of "${weightsFile.path}": errno ${code}`);
    };
    const found: LoadTime[] = [];
    for (const cold of [true, false]) {
      const trials = arms.map((arm) => ({ arm, rates: [] as Rates[] }));
      for (let round = 0; round < rounds; round += 1) {
        for (const { arm, rates } of trials) {
          const reads: number[] = [];
          for (const readers of readerCounts) {
            if (cold) evict();
            reads.push(await readRate(weightsFile.path, readers));
          }
          if (cold) evict();
          rates.push({ read: Math.max(...reads), ...(await load(arm, model.prepared)) });
        }
      }
      for (const { arm, rates } of trials) {
        const time = {
          arm: arm.name,
          cold,
          loadRate: median(rates.map(({ loaded }) => loaded)),
          readRate: median(rates.map(({ read }) => read)),
          linkRate: median(rates.map(({ link }) => link)),
          share: median(rates.map(({ loaded, read, link }) => loaded / Math.min(read, link))),
        };
        found.push(time);
        log(
          `${cold ? 'cold' : 'warm'} ${time.arm}: loaded ${text(time.loadRate)}, read ${text(time.readRate)}, link ${text(time.linkRate)} GB/s; ${time.share.toFixed(2)} of the slower (${rates.map(({ loaded, read, link }) => (loaded / Math.min(read, link)).toFixed(2)).join(' ')})`,
        );
      }
    }
    return found;
  } finally {
    model.remove();
  }
}

interface Rates {
  readonly read: number;
  readonly loaded: number;
  readonly link: number;
}

async function load(
  plan: ArmPlan,
  prepared: Parameters<typeof Arm.open>[2],
): Promise<{ loaded: number; link: number }> {
  const backend = await openCuda();
  const rates = await backend.hostTier.measureLink!(2 * prepared.description.config.hiddenSize);
  const arm = await Arm.open(plan, backend, prepared, promptTokens);
  const loaded = arm.loadRate;
  await arm.close();
  return { loaded, link: rates.denseBytesPerSecond };
}

/** The whole file, each of so many processes a stretch of it: loading's own readers are no measure of what a disk can. */
async function readRate(path: string, readers: number): Promise<number> {
  const parts = Math.ceil(statSync(path).size / partBytes);
  const count = Math.ceil(parts / readers);
  const began = process.hrtime.bigint();
  await Promise.all(
    Array.from({ length: readers }, (_, reader) =>
      run('dd', [
        `if=${path}`,
        'of=/dev/null',
        `bs=${partBytes}`,
        `skip=${reader * count}`,
        `count=${count}`,
      ]),
    ),
  );
  return statSync(path).size / (Number(process.hrtime.bigint() - began) / 1e9);
}

/** Pages that are not on the disk yet cannot leave the cache. */
function fsyncFile(path: string): void {
  const descriptor = openSync(path, 'r+');
  fsyncSync(descriptor);
  closeSync(descriptor);
}

function text(bytesPerSecond: number): string {
  return (bytesPerSecond / gigabyte).toFixed(2);
}
