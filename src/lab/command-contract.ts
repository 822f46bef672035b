import { z } from 'zod';
import { ExecutionError } from '../base/errors.js';
import { parseJson } from '../base/json.js';
import { decimalSchema, sha256Schema, trialSchema } from './record-format.js';

/** The JSON lines between the lab and a program that is an arm (docs/formats/lab-command.md). */
const causes = z.record(z.string().min(1).max(200), decimalSchema);

const readySchema = z.strictObject({
  type: z.literal('ready'),
  setupMoved: causes.optional(),
  arm: trialSchema.shape.arm.partial().optional(),
});

const tokenSchema = z.strictObject({
  type: z.literal('token'),
  id: z.int(),
  request: z.int().nonnegative(),
  tokenId: z.int().nonnegative(),
  logitsDigest: sha256Schema.optional(),
  /** The row, where the episode asks for it: little-endian binary32 in base64. */
  logits: z.base64().optional(),
});

const requestSchema = z.strictObject({
  tokenIds: z.array(z.int().nonnegative()),
  logitsDigests: z.array(sha256Schema).optional(),
  logits: z.array(z.base64()).optional(),
  finishReason: z.string().min(1).max(200).optional(),
  prefillNs: decimalSchema.optional(),
  decodeNs: decimalSchema.optional(),
  totalNs: decimalSchema.optional(),
  timeToFirstTokenNs: decimalSchema.optional(),
  decodeStepNs: z.array(decimalSchema).optional(),
});

const resultSchema = z.strictObject({
  type: z.literal('result'),
  id: z.int(),
  requests: z.array(requestSchema),
  bytes: z
    .strictObject({
      moved: causes.optional(),
      movedRows: causes.optional(),
      deviceRead: decimalSchema.optional(),
    })
    .optional(),
  peaks: trialSchema.shape.peaks.partial().optional(),
});

const failureSchema = z.strictObject({
  type: z.literal('error'),
  code: z.string().min(1).max(200),
  message: z.string(),
});

export const answerSchema = z.discriminatedUnion('type', [
  readySchema,
  tokenSchema,
  resultSchema,
  failureSchema,
]);
export type Answer = z.infer<typeof answerSchema>;
export type CommandResult = z.infer<typeof resultSchema>;

export const episodeSchema = z.strictObject({
  type: z.literal('episode'),
  id: z.int(),
  newTokens: z.int().min(1),
  /** Asks for the logits rows. */
  logits: z.literal(true).optional(),
  requests: z.array(z.strictObject({ promptIds: z.array(z.int().nonnegative()).min(1) })).min(1),
});
export type EpisodeLine = z.infer<typeof episodeSchema>;

/** Longest line that is read: ids and digests of a hundred thousand tokens. */
export const longestLine = 16 * 1024 * 1024;

/** @throws ExecutionError `command-contract` with the begin of the line */
export function parseAnswer(line: string, arm: string): Answer {
  let problem: string;
  let cause: unknown;
  try {
    const parsed = answerSchema.safeParse(parseJson(line, `output of arm "${arm}"`, { length: longestLine }));
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    problem = `${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`;
    cause = parsed.error;
  } catch (error) {
    problem = error instanceof Error ? error.message : String(error);
    cause = error;
  }
  throw new ExecutionError(
    'command-contract',
    `Cannot read what arm "${arm}" wrote: ${problem}; the line begins with ${JSON.stringify(line.slice(0, 80))}`,
    { arm },
    { cause },
  );
}
