// A claim from protocol to audit to report, by the library alone: node examples/lab.mjs [MODEL]
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import {
  auditArchive,
  buildArchive,
  freezeProtocol,
  labReport,
  openOrPrepare,
  parseProtocol,
  runProtocol,
  writeArchiveFile,
} from 'waybill';

const model = resolve(process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-draft'));
const folder = await mkdtemp(join(tmpdir(), 'waybill-example-'));
const { prepared } = await openOrPrepare(model, {});
const { sourceDigest } = prepared;
await prepared.close();

// The claim, frozen before anything is measured. JSON is YAML, too.
const arm = (policy) => ({
  kind: 'session',
  name: policy,
  group: 'f16',
  policy,
  backend: 'cpu',
  kernels: 'auto',
  threads: 1,
  kv: 'f16',
  budget: '3MiB',
  contextPositions: 64,
  prefillChunk: 16,
  samples: true,
});
const protocol = {
  protocol: 1,
  name: 'example',
  question: 'Do packets give the bits of a stream, in fewer bytes?',
  program: 'any',
  isolation: 'shared-process',
  model: { path: model, sourceDigest },
  arms: [arm('stream'), arm('packets')],
  workload: {
    kind: 'known',
    items: [{ prompts: [{ promptIds: [2, 100, 524, 7] }] }],
    newTokens: 4,
    includeContent: false,
  },
  schedule: { seed: 1, blocks: 2, order: 'balanced', warmUps: 0 },
  metrics: ['moved-bytes', 'peak-held-bytes'],
  gates: [
    { name: 'same bits', family: 'faithfulness', check: 'bit-equal', arms: ['stream', 'packets'] },
    {
      name: 'fewer bytes',
      family: 'acquisition',
      check: 'share-at-most',
      arm: 'packets',
      of: 'stream',
      metric: 'moved-bytes',
      bound: '0.90',
    },
  ],
  confidence: 0.95,
  nonClaims: ['Nothing is said of other models, prompts or machines.'],
};
const protocolPath = join(folder, 'example.yaml');
const draft = parseProtocol(Buffer.from(JSON.stringify(protocol)), 'example.yaml');
await writeFile(protocolPath, freezeProtocol(draft, new Date().toISOString().replace('Z', '+00:00')));

const runPath = join(folder, 'run');
const evaluation = await runProtocol({ protocolPath, runPath, leaseFolder: join(folder, 'leases') });
for (const { verdict, name } of evaluation.gates) console.log(`${verdict}: ${name}`);

const sources = { run: runPath, noise: null, attempts: [], attachments: [], privateKey: null };
const { members } = await buildArchive(sources);
const { path } = await writeArchiveFile(join(folder, 'example.zip'), members);

// From here on a stranger needs nothing but the file.
const bytes = await readFile(path);
const audited = await auditArchive(bytes, { name: 'example.zip' });
console.log(`audit: ${audited.audit.holds ? 'holds' : 'broken'}, verdict ${audited.audit.verdict}`);
const html = await labReport(audited, 'html');
console.log(`report: ${html.startsWith('<!doctype html>') ? 'one HTML file' : 'something else'}`);

bytes[bytes.length >> 1] ^= 1;
const { audit } = await auditArchive(bytes, { name: 'example.zip' });
console.log(`with one bit changed: ${audit.holds ? 'holds' : 'broken'}`);
await rm(folder, { recursive: true });
