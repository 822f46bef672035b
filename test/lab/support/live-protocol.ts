import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { openOrPrepare } from '../../../src/checkpoint/open-or-prepare.js';
import { freezeProtocol } from '../../../src/lab/freeze.js';
import { parseProtocol } from '../../../src/lab/protocol-file.js';
import type { Protocol } from '../../../src/lab/protocol-schema.js';
import { sampleProtocol, yamlBytes } from './sample-protocol.js';

/** A folder of its own for runs, leases, prepared models; the smallest embedded model. */
export interface Bench {
  readonly folder: string;
  readonly leaseFolder: string;
  readonly model: string;
  readonly sourceDigest: string;
  /** Writes a frozen protocol and gives its path. */
  freeze(protocol: Protocol, name?: string): Promise<string>;
  close(): Promise<void>;
}

export async function openBench(): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-lab-'));
  process.env.HF_HOME = join(folder, 'hf');
  const model = resolve('models/opt-books-draft');
  const { prepared } = await openOrPrepare(model, {});
  const { sourceDigest } = prepared;
  await prepared.close();
  await mkdir(join(folder, 'protocols'));
  return {
    folder,
    leaseFolder: join(folder, 'leases'),
    model,
    sourceDigest,
    freeze: async (protocol, name = 'protocol.yaml') => {
      const path = join(folder, 'protocols', name);
      const text = freezeProtocol(parseProtocol(yamlBytes(protocol), name), '2026-01-02T03:04:05+00:00');
      await writeFile(path, text);
      return path;
    },
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Two arms on the smallest model, two blocks, without a gate on time. */
export function liveProtocol({ model, sourceDigest }: Bench, changes: Partial<Protocol> = {}): Protocol {
  const sample = sampleProtocol();
  return sampleProtocol({
    model: { path: model, sourceDigest },
    workload: {
      kind: 'known',
      items: [{ prompts: [{ promptIds: [2, 100, 524] }, { promptIds: [2, 7, 8, 9] }] }],
      newTokens: 3,
      includeContent: false,
    },
    schedule: { seed: 7, blocks: 2, order: 'balanced', warmUps: 1 },
    gates: [
      ...sample.gates.slice(0, 2),
      { name: 'all trials', family: 'resources', check: 'complete' },
      { name: 'nothing left', family: 'resources', check: 'clean-end' },
    ],
    ...changes,
  });
}
