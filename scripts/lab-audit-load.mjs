// Makes an archive of about 100 MB (or the megabytes that are given) and measures its audit: wall time and peak memory of a process that
// does nothing else. Usage (after npm run build): node scripts/lab-audit-load.mjs [megabytes]
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { canonicalJson } from '../dist/base/canonical-json.js';
import { buildArchive } from '../dist/lab/archive.js';
import { readArchiveFile, writeArchiveFile } from '../dist/lab/archive-file.js';
import { unknownArm } from '../dist/lab/arm-driver.js';
import { auditArchive } from '../dist/lab/audit.js';
import { freezeProtocol } from '../dist/lab/freeze.js';
import { plannedSlots } from '../dist/lab/planned-slots.js';
import { parseProtocol } from '../dist/lab/protocol-file.js';

if (process.argv[2] === '--audit') {
  const began = performance.now();
  const { audit } = await auditArchive(await readArchiveFile(process.argv[3]), { name: 'load.zip' });
  const seconds = (performance.now() - began) / 1000;
  if (!audit.holds) throw new Error(audit.broken.problem);
  const { user, system } = process.cpuUsage();
  const megabytes = process.resourceUsage().maxRSS / 1000;
  const processorSeconds = (user + system) / 1e6;
  console.log(JSON.stringify({ seconds, processorSeconds, megabytes, verdict: audit.verdict }));
} else {
  await measure(Number(process.argv[2] ?? 100));
}

async function measure(megabytes) {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-load-'));
  try {
    // A record of two requests with 240 logits digests each has about 33 kB
    const blocks = 2 * Math.ceil((megabytes * 1e6) / 33_000 / 4);
    await writeRun(join(folder, 'run'), blocks, 240);
    const sources = { noise: null, attempts: [], attachments: [], privateKey: null };
    const { members } = await buildArchive({ ...sources, run: join(folder, 'run') });
    const { byteLength } = await writeArchiveFile(join(folder, 'load.zip'), members);
    const script = fileURLToPath(import.meta.url);
    const found = execFileSync(process.execPath, [script, '--audit', join(folder, 'load.zip')], {
      encoding: 'utf8',
    });
    const { seconds, processorSeconds, megabytes: peak, verdict } = JSON.parse(found);
    console.log(
      `${(byteLength / 1e6).toFixed(1)} MB, ${2 * blocks + 1} records: ${seconds.toFixed(1)} s (${processorSeconds.toFixed(1)} s of processor time), ${peak.toFixed(0)} MB of memory, verdict ${verdict}; ${cpus().length} processors (${cpus()[0]?.model}), load average ${loadavg()[0].toFixed(1)}`,
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The folder of a run of two commands that gave the same logits. */
async function writeRun(folder, blocks, newTokens) {
  const arm = (name) => ({
    kind: 'command',
    name,
    group: 'one',
    command: ['true'],
    files: [],
    timeoutSeconds: 1,
  });
  const protocol = {
    protocol: 1,
    name: 'load',
    question: 'How long does the audit of a large archive take?',
    program: 'any',
    isolation: 'shared-process',
    arms: [arm('a'), arm('b')],
    workload: {
      kind: 'known',
      items: [{ prompts: [{ promptIds: [2, 3] }, { promptIds: [4, 5] }] }],
      newTokens,
      includeContent: false,
    },
    schedule: { seed: 1, blocks, order: 'balanced', warmUps: 0 },
    metrics: ['episode-ns', 'new-tokens'],
    gates: [
      { name: 'same bits', family: 'faithfulness', check: 'bit-equal', arms: ['a', 'b'] },
      {
        name: 'not slower',
        family: 'runtime',
        check: 'ratio-at-most',
        arm: 'a',
        against: 'b',
        metric: 'episode-ns',
        bound: '1.10',
        confidence: 0.95,
      },
    ],
    confidence: 0.95,
    nonClaims: ['The records are made up.'],
  };
  const file = parseProtocol(Buffer.from(JSON.stringify(protocol)), 'load.yaml');
  await mkdir(join(folder, 'records'), { recursive: true });
  await writeFile(join(folder, 'protocol.yaml'), freezeProtocol(file, '2026-01-01T00:00:00+00:00'));
  const at = '2026-01-01T00:00:01+00:00';
  const manifest = {
    format: 'waybill-lab-run/1',
    kind: 'manifest',
    variant: 'measured',
    protocol: { name: 'load', digest: file.digest },
    program: { name: 'program/waybill@0.0.0', sha256: digest('program') },
    subjects: {},
    items: [digest('item')],
    slots: plannedSlots(protocol, 1),
    startedAt: at,
    environment: {
      platform: 'none',
      architecture: 'none',
      node: 'none',
      processor: 'none',
      processors: 1,
      memoryBytes: '1',
      lease: ['none'],
    },
  };
  const bytes = Buffer.from(`${canonicalJson(manifest)}\n`);
  await writeFile(join(folder, 'manifest.json'), bytes);
  let previous = createHash('sha256').update(bytes).digest('hex');
  let sequence = 0;
  const append = async (record) => {
    const linked = { format: 'waybill-lab-run/1', sequence: ++sequence, previous, ...record };
    const line = Buffer.from(`${canonicalJson(linked)}\n`);
    previous = createHash('sha256').update(line).digest('hex');
    await writeFile(join(folder, 'records', `${String(sequence).padStart(6, '0')}.json`), line);
  };
  for (const [index, slot] of manifest.slots.entries()) await append(trialOf(slot, index, newTokens, at));
  const endState = {
    heldBytes: '0',
    residentSetBytesBefore: '1',
    residentSetBytesAfter: '1',
    childrenLeft: 0,
    scratchLeft: 0,
  };
  await append({ kind: 'ended', at, status: 'completed', error: null, endState });
}

function trialOf(slot, index, newTokens, at) {
  const machine = {
    loadAverageThousandths: '0',
    freeMemoryBytes: '1',
    clocksMegahertz: null,
    temperatureCelsius: null,
    throttleReasons: null,
  };
  const request = (number) => ({
    promptTokens: 2,
    newTokens,
    finishReason: 'length',
    tokenIdsDigest: digest(`ids ${number}`),
    logitsDigests: Array.from({ length: newTokens }, (_, token) => digest(`logits ${number} ${token}`)),
    prefillNs: '1000',
    decodeNs: '2000',
    totalNs: '3000',
    timeToFirstTokenNs: '1001',
    decodeStepNs: [],
  });
  const unknown = { heldBytes: null, heldByCause: null, residentSetBytes: null };
  return {
    kind: 'trial',
    slot,
    attempt: 1,
    status: 'completed',
    error: null,
    difference: null,
    process: 1,
    fresh: false,
    startedAt: at,
    finishedAt: at,
    requests: [request(0), request(1)],
    times: {
      beganNs: '0',
      endedNs: String(1_000_000 + ((index * 7919) % 997)),
      setupNs: null,
      recordingNs: '0',
    },
    bytes: { moved: null, movedRows: null, setupMoved: null, deviceRead: null, recording: '0' },
    peaks: { ...unknown, deviceUsedBytes: null, pinnedBytes: null },
    samples: [],
    machine: { before: machine, after: machine },
    arm: unknownArm,
  };
}

function digest(text) {
  return createHash('sha256').update(text).digest('hex');
}
