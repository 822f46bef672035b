import { createHash } from 'node:crypto';
import { type Span, subspan } from '../memory/buffers.js';
import type { GenerateOptions } from './options.js';
import { openModel } from './session.js';
import type { SessionHooks, SessionOptions } from './session-options.js';

/** What was continued, and the digests that came of it. */
export interface RestoredRequest {
  readonly promptTokenIds: readonly number[];
  readonly logitsDigests: readonly string[];
}

/** The first thing that is not what it was. */
export interface RestoreDifference {
  readonly what: 'weight' | 'logits';
  /** Of a weight its id, else `request 0, token 3`. */
  readonly where: string;
  readonly expected: string;
  readonly found: string;
}

export interface RestoreCheck {
  /** Tensors read back from where ops read them, each compared by SHA-256 with the prepared form's manifest. */
  readonly weights: number;
  readonly weightBytes: number;
  /** Logits rows that are equal, up to the first difference. */
  readonly logits: number;
  readonly difference: RestoreDifference | null;
}

/** Bytes of a weight that are on the host at once. */
const readBytes = 16 * 1024 * 1024;

/**
 * Brings every weight back to where arithmetic happens, reads all of them from there against the manifest, and generates
 * again with everything resident. The session that made the digests is closed: both need not fit at once.
 *
 * @throws BudgetError or SetupError where the whole model does not fit
 */
export async function checkRestored(
  made: SessionOptions,
  requests: readonly RestoredRequest[],
  generating: GenerateOptions,
  hooks: SessionHooks = {},
): Promise<RestoreCheck> {
  const session = await openModel(
    {
      ...made,
      policy: 'resident',
      budgetBytes: Infinity,
      hostBudgetBytes: Infinity,
      retain: null,
      profile: null,
      streamLayout: 'packed',
    },
    hooks,
  );
  try {
    const { prepared } = session.plan;
    let weights = 0;
    let weightBytes = 0;
    for (const [id, span] of session.source.residentWeights()) {
      const expected = prepared.tensor(id).sha256;
      const found = await digestOf(span, (part) => session.backend.read(part));
      if (found !== expected) {
        const difference = { what: 'weight', where: id, expected, found } as const;
        return { weights, weightBytes, logits: 0, difference };
      }
      weights += 1;
      weightBytes += span.byteLength;
    }
    let logits = 0;
    const generation = session.generate(
      requests.map(({ promptTokenIds }) => promptTokenIds),
      generating,
      hooks.signal === undefined ? {} : { signal: hooks.signal },
    );
    for await (const { request, index, logitsDigest } of generation) {
      const expected = requests[request]!.logitsDigests[index] ?? 'none';
      if (logitsDigest !== expected) {
        const where = `request ${request}, token ${index}`;
        const difference = { what: 'logits', where, expected, found: logitsDigest } as const;
        return { weights, weightBytes, logits, difference };
      }
      logits += 1;
    }
    const wanted = requests.reduce((sum, { logitsDigests }) => sum + logitsDigests.length, 0);
    const short = {
      what: 'logits',
      where: 'number of rows',
      expected: `${wanted}`,
      found: `${logits}`,
    } as const;
    return { weights, weightBytes, logits, difference: logits === wanted ? null : short };
  } finally {
    await session.close();
  }
}

async function digestOf(span: Span, read: (part: Span) => Promise<Uint8Array>): Promise<string> {
  const hash = createHash('sha256');
  for (let at = 0; at < span.byteLength; at += readBytes) {
    hash.update(await read(subspan(span, at, Math.min(readBytes, span.byteLength - at))));
  }
  return hash.digest('hex');
}
