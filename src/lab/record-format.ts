import { z } from 'zod';

/**
 * What a run leaves behind (docs/formats/lab-run.md): one manifest, and a chain of records of which each names the
 * SHA-256 of the one before. Every file is canonical JSON and a newline; ns and bytes are decimal strings; there is no
 * fractional number, so no NaN.
 */
export const runFormat = 'waybill-lab-run/1';

export const decimalSchema = z.string().regex(/^(0|[1-9]\d{0,29})$/, 'a decimal integer');
export const sha256Schema = z.string().regex(/^[0-9a-f]{64}$/, 'a SHA-256 in lower-case hex');
export const zonedTimeSchema = z.iso.datetime({ offset: true });
const nameSchema = z.string().min(1).max(200);
const countSchema = z.int().nonnegative();
const bytesByCause = z.record(nameSchema, decimalSchema);

const subjectSchema = z.strictObject({ name: nameSchema, sha256: sha256Schema });

/** One trial of the schedule: `block` and `position` are null in the phases around the measured one. */
export const slotSchema = z.strictObject({
  phase: z.enum(['reference', 'warm-up', 'measured']),
  /** Index of the block (a pair where there are two arms). */
  block: countSchema.nullable(),
  /** Place of the trial in its block. */
  position: countSchema.nullable(),
  arm: nameSchema,
  item: countSchema,
});
export type Slot = z.infer<typeof slotSchema>;

export const environmentSchema = z.strictObject({
  platform: nameSchema,
  architecture: nameSchema,
  node: nameSchema,
  processor: z.string(),
  processors: countSchema,
  memoryBytes: decimalSchema,
  /** What the lease of this run covers: `cpu-0`, `cpu-1`, or the UUID of a GPU. */
  lease: z.array(nameSchema),
  /** Of a run with a GPU: what it is, its memory, the version of CUDA that its driver serves. */
  gpu: z.strictObject({ name: nameSchema, memoryBytes: decimalSchema, driver: nameSchema }).optional(),
});
export type Environment = z.infer<typeof environmentSchema>;

export const manifestSchema = z.strictObject({
  format: z.literal(runFormat),
  kind: z.literal('manifest'),
  /** `aa`: every arm was configured as the baseline; such a run gives the noise floor and no verdict. */
  variant: z.enum(['measured', 'aa']),
  protocol: z.strictObject({ name: nameSchema, digest: sha256Schema }),
  program: subjectSchema,
  /** Files that decide results, by arm: checkpoint, prepared manifest; of commands, what the protocol lists. */
  subjects: z.record(nameSchema, z.array(subjectSchema)),
  /** SHA-256 over salt and canonical prompts of each workload item; the salt stays with the owner. */
  items: z.array(sha256Schema).min(1),
  /** All trials in their order. */
  slots: z.array(slotSchema).min(1),
  startedAt: zonedTimeSchema,
  environment: environmentSchema,
});
export type Manifest = z.infer<typeof manifestSchema>;

const requestRecordSchema = z.strictObject({
  promptTokens: countSchema,
  newTokens: countSchema,
  finishReason: nameSchema,
  /** SHA-256 over salt, then ids as little-endian U32. */
  tokenIdsDigest: sha256Schema,
  /** One a new token; empty where the arm gives none (commands may not). */
  logitsDigests: z.array(sha256Schema),
  /** The rows themselves as little-endian binary32 in base64, one a digest; only of arms that keep them. */
  logits: z.array(z.base64()).optional(),
  prefillNs: decimalSchema.nullable(),
  decodeNs: decimalSchema.nullable(),
  totalNs: decimalSchema.nullable(),
  timeToFirstTokenNs: decimalSchema.nullable(),
  /** Time inside decode calls, each; empty where it was not measured. */
  decodeStepNs: z.array(decimalSchema),
  /** Only where the protocol includes content. */
  content: z.strictObject({ tokenIds: z.array(countSchema) }).optional(),
});
export type RequestRecord = z.infer<typeof requestRecordSchema>;

export const sampleSchema = z.strictObject({
  elapsedNs: decimalSchema, // since the trial began
  residentSetBytes: decimalSchema.nullable(),
  heldBytes: decimalSchema.nullable(),
  deviceUsedBytes: decimalSchema.nullable(),
});
export type Sample = z.infer<typeof sampleSchema>;

export const machineSchema = z.strictObject({
  /** One-minute load average in thousandths. */
  loadAverageThousandths: decimalSchema,
  freeMemoryBytes: decimalSchema,
  /** Of the multiprocessors, where the device tells; null on a CPU. */
  clocksMegahertz: decimalSchema.nullable(),
  temperatureCelsius: decimalSchema.nullable(),
  /** Why clocks are below what they could be; empty where nothing holds them back. */
  throttleReasons: z.array(nameSchema).nullable(),
  memoryClockMegahertz: decimalSchema.nullable().optional(),
  powerMilliwatts: decimalSchema.nullable().optional(),
  powerCapMilliwatts: decimalSchema.nullable().optional(),
  deviceUsedBytes: decimalSchema.nullable().optional(),
  /** Processes of others that compute on the GPU: their ids and, where it is told, their bytes there. */
  foreignProcesses: z
    .array(z.strictObject({ pid: countSchema, usedBytes: decimalSchema.nullable() }))
    .nullable()
    .optional(),
});
export type MachineState = z.infer<typeof machineSchema>;

const linkSchema = {
  format: z.literal(runFormat),
  sequence: z.int().positive(),
  /** SHA-256 of the file before: of the manifest for the first record. */
  previous: sha256Schema,
};

const errorSchema = z.strictObject({ code: nameSchema, message: z.string() });

/** The first place where an arm's results differ from what its group gave before. */
export const differenceSchema = z.strictObject({
  request: countSchema,
  /** Index of the new token; null where the numbers of tokens differ. */
  index: countSchema.nullable(),
  what: z.enum(['logits', 'tokens', 'length']),
  expected: z.string(),
  found: z.string(),
});
export type Difference = z.infer<typeof differenceSchema>;

export const trialSchema = z.strictObject({
  ...linkSchema,
  kind: z.literal('trial'),
  slot: slotSchema,
  /** 1, and one more each time that the block was broken and repeated. */
  attempt: z.int().positive(),
  status: z.enum(['completed', 'interrupted', 'failed', 'different']),
  error: errorSchema.nullable(),
  difference: differenceSchema.nullable(),
  /** Ordinal of the process in this run; trials with one ordinal shared it. */
  process: countSchema,
  /** True where setup happened in this trial: a new process, or a session opened for it. */
  fresh: z.boolean(),
  startedAt: zonedTimeSchema,
  finishedAt: zonedTimeSchema,
  requests: z.array(requestRecordSchema),
  times: z.strictObject({
    /** Clock readings at begin and end of the episode, on a clock that never goes back. */
    beganNs: decimalSchema,
    endedNs: decimalSchema,
    /** Opening the arm, where it happened in this trial. */
    setupNs: decimalSchema.nullable(),
    /** Time that sampling and record keeping took inside the episode. */
    recordingNs: decimalSchema,
  }),
  bytes: z.strictObject({
    moved: bytesByCause.nullable(),
    movedRows: bytesByCause.nullable(),
    setupMoved: bytesByCause.nullable(),
    deviceRead: decimalSchema.nullable(),
    /** Bytes that the recorder held for this trial: the size of its own samples. */
    recording: decimalSchema,
  }),
  peaks: z.strictObject({
    /** Bytes allocated for weights, KV and workspace, as the ledger saw them. */
    heldBytes: decimalSchema.nullable(),
    heldByCause: bytesByCause.nullable(),
    /** The system's own high-water mark of the process; of all it ran, in a shared process. */
    residentSetBytes: decimalSchema.nullable(),
    deviceUsedBytes: decimalSchema.nullable(),
    pinnedBytes: decimalSchema.nullable(),
  }),
  samples: z.array(sampleSchema),
  machine: z.strictObject({ before: machineSchema, after: machineSchema }),
  arm: z.strictObject({
    backend: nameSchema.nullable(),
    kernels: nameSchema.nullable(),
    kernelDigest: sha256Schema.nullable(),
    numerics: z.enum(['portable', 'native']).nullable(),
    threads: countSchema.nullable(),
    policy: nameSchema.nullable(),
    regime: nameSchema.nullable(),
    budgetBytes: decimalSchema.nullable(),
    planDigest: sha256Schema.nullable(),
    plannedBytes: decimalSchema.nullable(),
  }),
  /** Of a reference that an archive holds: this record is a copy of that one, but for its place in the chain. */
  borrowed: z
    .strictObject({
      archiveSha256: sha256Schema,
      /** Number of the record in the archive. */
      record: z.int().positive(),
      /** Its slot there. */
      slot: slotSchema,
    })
    .optional(),
});
export type TrialRecord = z.infer<typeof trialSchema>;

/** A later process took the run over. */
export const resumedSchema = z.strictObject({
  ...linkSchema,
  kind: z.literal('resumed'),
  at: zonedTimeSchema,
  /** Index into the manifest's slots of the trial that comes next. */
  nextSlot: countSchema,
  /** Block that was broken and is repeated; its earlier records stay. */
  brokenBlock: countSchema.nullable(),
  environment: environmentSchema,
});
export type ResumedRecord = z.infer<typeof resumedSchema>;

/** A process left the run. A run without such a record at its end was killed. */
export const endedSchema = z.strictObject({
  ...linkSchema,
  kind: z.literal('ended'),
  at: zonedTimeSchema,
  status: z.enum(['completed', 'interrupted', 'failed', 'different']),
  error: errorSchema.nullable(),
  /** Blocks after which a sequential rule ended the run, where it did before the last look. */
  stoppedAfterBlocks: z.int().positive().optional(),
  endState: z.strictObject({
    heldBytes: decimalSchema,
    residentSetBytesBefore: decimalSchema,
    residentSetBytesAfter: decimalSchema,
    childrenLeft: countSchema,
    scratchLeft: countSchema,
    /** Of the GPU, by all processes; others come and go, so nothing is judged by it. */
    deviceUsedBytesBefore: decimalSchema.nullable().optional(),
    deviceUsedBytesAfter: decimalSchema.nullable().optional(),
  }),
});
export type EndedRecord = z.infer<typeof endedSchema>;

export const recordSchema = z.discriminatedUnion('kind', [trialSchema, resumedSchema, endedSchema]);
export type RunRecord = z.infer<typeof recordSchema>;

/** Names of the files of a run, relative to its folder; an archive has the same. */
export const runFiles = {
  protocol: 'protocol.yaml',
  manifest: 'manifest.json',
  /** Never archived: lets its owner confirm a guess at a prompt. */
  salt: 'salt',
  /** The protocols that this one supersedes, the nearest first: `superseded/1.yaml` and on. */
  superseded: (number: number): string => `superseded/${number}.yaml`,
  /** `records/000001.json` and on. */
  record: (sequence: number): string => `records/${String(sequence).padStart(6, '0')}.json`,
} as const;

export const recordNamePattern = /^records\/(\d{6,})\.json$/;
