import { createHash } from 'node:crypto';
import { cpus, totalmem } from 'node:os';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import type { GenerateOptions } from '../generate/options.js';
import type { GenerationOutcome, RequestOutcome } from '../generate/outcome.js';
import type { Session } from '../generate/session.js';
import { weightMoveCauses } from '../memory/causes.js';
import { processUsage } from '../memory/process-usage.js';
import { programSubject } from './program.js';
import type { RunPredicate } from './run-predicate.js';
import type { Subject } from './statement.js';

/** What a receipt is made from, beside the session. */
export interface RunFacts {
  readonly outcome: GenerationOutcome;
  readonly options: GenerateOptions;
  readonly startedAt: Date;
  readonly finishedAt: Date;
  /** 32 random bytes; stay with the owner. */
  readonly salt: Uint8Array;
  readonly includeContent: boolean;
}

/** Subjects of a session's runs: checkpoint files, prepared manifest, program. */
export function sessionSubjects(session: Session): Subject[] {
  const { prepared } = session.plan;
  return [
    ...prepared.sourceFiles.map(({ name, sha256 }) => ({ name: `checkpoint/${name}`, digest: { sha256 } })),
    { name: 'prepared/manifest.json', digest: { sha256: prepared.manifestDigest } },
    ...quantisedSubjects(session),
    ...lowBitSubjects(session),
    programSubject(),
  ];
}

function quantisedSubjects({ quantised }: Session): Subject[] {
  if (quantised === null) return [];
  const { type, manifestDigest } = quantised;
  return [{ name: `prepared/quantised/${type}/manifest.json`, digest: { sha256: manifestDigest } }];
}

function lowBitSubjects({ lowBit }: Session): Subject[] {
  if (lowBit === null) return [];
  const { plan, manifestDigest } = lowBit;
  return [{ name: `prepared/low-bit/${plan.name}/manifest.json`, digest: { sha256: manifestDigest } }];
}

/** The accounting of a run as docs/formats/run-receipt.md lays it out. */
export function runPredicate(session: Session, facts: RunFacts): Omit<RunPredicate, 'seal'> {
  const { outcome } = facts;
  const { placement, backendChoice } = session.plan;
  const { info } = session.backend;
  const movedTotal = Object.values(outcome.bytes.moved).reduce((sum, bytes) => sum + bytes, 0);
  return {
    version: '0.1',
    status: outcome.status,
    startedAt: zoned(facts.startedAt),
    finishedAt: zoned(facts.finishedAt),
    numerics: info.numerics,
    backend: {
      name: info.name,
      kernels: info.kernels,
      reason: backendChoice === null ? info.reason : `${info.reason}; picked: ${backendChoice.reason}`,
      threads: info.threads,
      kernelDigest: info.kernelDigest,
    },
    policy: placement.policy,
    exact: placement.exact,
    regime: placement.regime,
    budgetBytes: placement.budgetBytes === null ? null : String(placement.budgetBytes),
    plan: {
      digest: sha256Hex(Buffer.from(canonicalJson(placement), 'utf8')),
      components: placement.components.map(({ label, cause, bytes }) => ({
        label,
        cause,
        bytes: String(bytes),
      })),
      plannedBytes: String(placement.totalBytes),
    },
    options: optionRecord(session, facts.options),
    requests: outcome.requests.map((request) => requestRecord(request, facts)),
    bytes: {
      moved: decimals(outcome.bytes.moved),
      movedRows: decimals(outcome.bytes.movedRows),
      movedTotal: String(movedTotal),
      heldPeak: decimals(outcome.bytes.heldPeak),
      heldPeakTotal: String(outcome.bytes.totalHeldPeak),
      setupMoved: decimals(session.setup.moved),
      deviceRead: outcome.deviceReadBytes === null ? null : String(outcome.deviceReadBytes),
      reads: readTemperature(outcome),
    },
    peaks: {
      heldBytes: String(outcome.bytes.totalHeldPeak),
      residentSetBytes: String(processUsage().peakResidentBytes),
      ...devicePeaks(session),
    },
    times: timeRecord(session, outcome),
    environment: environmentRecord(),
  };
}

/** Of a device: what was allocated, what the system saw, and whether a bounded start may be claimed. */
function devicePeaks({ backend, boundedStart }: Session): Pick<RunPredicate['peaks'], 'device'> {
  const use = backend.deviceWatch?.use;
  if (use === undefined || boundedStart === null) return {};
  const { allocatedPeakBytes, pinnedBytes, sampled } = use;
  return {
    device: {
      allocatedBytes: String(allocatedPeakBytes),
      pinnedBytes: String(pinnedBytes),
      boundedStart,
      sampled:
        sampled === null
          ? null
          : {
              source: sampled.source,
              peakBytes: String(sampled.peakBytes),
              samples: sampled.samples,
              intervalMs: sampled.intervalMs,
              longestGapMs: sampled.longestGapMs,
            },
    },
  };
}

function optionRecord(session: Session, options: GenerateOptions): RunPredicate['options'] {
  const { kv, prefillChunk } = session.plan.options;
  return {
    kv,
    contextPositions: session.capacity,
    prefillChunk,
    maxNewTokens: options.maxNewTokens,
    temperature: options.temperature,
    topK: options.topK,
    topP: options.topP,
    minP: options.minP,
    seed: String(options.seed),
    stopStrings: options.stop.length,
    ignoreEos: options.ignoreEos,
  };
}

function requestRecord(request: RequestOutcome, facts: RunFacts): RunPredicate['requests'][number] {
  const { promptTokenIds, tokenIds, finishReason, logitsDigests, text } = request;
  const content = { promptIds: [...promptTokenIds], tokenIds: [...tokenIds], text };
  return {
    promptTokens: promptTokenIds.length,
    newTokens: tokenIds.length,
    finishReason,
    promptIdsDigest: saltedIdsDigest(promptTokenIds, facts.salt),
    tokenIdsDigest: saltedIdsDigest(tokenIds, facts.salt),
    logitsDigests: [...logitsDigests],
    ...(facts.includeContent ? { content } : {}),
  };
}

/** SHA-256 over the salt, then the ids as little-endian U32. */
export function saltedIdsDigest(ids: readonly number[], salt: Uint8Array): string {
  const bytes = Buffer.alloc(4 * ids.length);
  ids.forEach((id, index) => {
    bytes.writeUInt32LE(id, 4 * index);
  });
  return createHash('sha256').update(salt).update(bytes).digest('hex');
}

/**
 * Cold: block devices delivered at least nine tenths of the bytes asked of the prepared file; warm: at most one tenth,
 * the page cache had the rest. Other reads of the process are counted by the system, too, so this is a reading and no
 * proof.
 */
function readTemperature({ bytes, deviceReadBytes }: GenerationOutcome): RunPredicate['bytes']['reads'] {
  const { moved } = bytes;
  const asked = weightMoveCauses
    .filter((cause) => cause !== 'indices') // the host adds them
    .reduce((sum, cause) => sum + moved[cause], 0);
  if (asked === 0) return 'none';
  if (deviceReadBytes === null) return 'unknown';
  if (deviceReadBytes >= 0.9 * asked) return 'cold';
  return deviceReadBytes <= 0.1 * asked ? 'warm' : 'mixed';
}

function timeRecord(session: Session, { times }: GenerationOutcome): RunPredicate['times'] {
  return {
    openNs: session.openNs.toString(),
    prefillNs: times.prefillNs.toString(),
    decodeNs: times.decodeNs.toString(),
    totalNs: times.totalNs.toString(),
    timeToFirstTokenNs: times.timeToFirstTokenNs?.toString() ?? null,
    decodeStepNs: times.decodeStepNs.map(String),
  };
}

function environmentRecord(): RunPredicate['environment'] {
  const processors = cpus();
  return {
    platform: process.platform,
    architecture: process.arch,
    node: process.version,
    processor: processors[0]?.model.trim() ?? 'unknown',
    processors: Math.max(1, processors.length),
    memoryBytes: String(totalmem()),
  };
}

function decimals(counts: Readonly<Record<string, number>>): Record<string, string> {
  return Object.fromEntries(Object.entries(counts).map(([cause, count]) => [cause, String(count)]));
}

function zoned(date: Date): string {
  return date.toISOString().replace('Z', '+00:00');
}
