import type { PassKind } from '../acquire/weight-source.js';
import { noGreedyId } from '../backend/ops.js';
import { Pass } from '../backend/pass.js';
import { NumericsError } from '../base/errors.js';
import { type Span, subspan } from '../memory/buffers.js';
import type { ForwardBatch } from '../model/batch.js';
import { nonFiniteFinder } from '../model/non-finite.js';
import type { Engine } from './engine.js';
import { LogitsRow } from './logits-row.js';
import { greedyOfFinite } from './sampler.js';

/**
 * Runs one pass and brings the wanted logits to the host. After a failure the source is put back into a state that
 * the next pass can start from. `next` says which pass follows, so that weights can be read ahead for it; `meanwhile`
 * is done once beside the computation, or not at all.
 *
 * @throws NumericsError `kv-overflow`; `non-finite` that names op, layer and position where a logit is no number
 */
export function forward(
  engine: Engine,
  batch: ForwardBatch,
  next: PassKind | null,
  meanwhile: (() => void) | null = null,
): Promise<LogitsRow[]> {
  return engine.turn.pass(async () => {
    try {
      return await compute(engine, batch, next, new Pass(engine.backend, engine.observer, meanwhile));
    } catch (error) {
      if (!(error instanceof NumericsError) || error.code !== 'non-finite-logit') throw error;
      // A pass writes only what it has written before, so it can run again to be watched
      await compute(engine, batch, null, new Pass(engine.backend, nonFiniteFinder(batch)));
      throw error;
    }
  });
}

async function compute(
  engine: Engine,
  batch: ForwardBatch,
  next: PassKind | null,
  pass: Pass,
): Promise<LogitsRow[]> {
  const { backend, source, ledger, vocabSize } = engine;
  // A token's arithmetic follows from its being of the prompt or new, never from how passes divide the tokens.
  pass.numerics = batch.kind === 'prefill' ? backend.info.numerics : 'portable';
  try {
    source.expect(next);
    await source.begin(pass, batch.kind);
    const logits = await emitted(engine, batch, pass);
    const ended = source.end(pass);
    if (batch.logitsRows.length === 0) {
      await ended;
      record(engine, batch, pass, logits);
      return [];
    }
    const landed = await readBehind(pass, ended, () => landing(engine, batch, logits));
    record(engine, batch, pass, logits);
    ledger.move('logits-readback', landed.byteLength, batch.logitsRows.length);
    return batch.logitsRows.map((index, row) => rowOf(landed, row, batch.rows[index]!.position, vocabSize));
  } catch (error) {
    await pass.flush().catch(() => {}); // the first failure is the one to tell
    await source.reset();
    throw error;
  }
}

/** Emits the pass, or queues the ops of an equal one before; gives where its logits will lie. */
async function emitted(engine: Engine, batch: ForwardBatch, pass: Pass): Promise<Span> {
  const { model, source, recorded } = engine;
  const known = pass.observed ? null : recorded.find(batch);
  if (known === null) return model.forward(pass, batch);
  model.place(batch);
  source.repeat(pass, known.ops);
  return known.logits;
}

/** Keeps the ops of a finished pass that can come again. */
function record({ source, recorded }: Engine, batch: ForwardBatch, pass: Pass, logits: Span): void {
  const ops = pass.onlySubmission;
  if (ops === null || pass.observed || Object.isFrozen(ops)) return;
  if (source.repeats(batch.kind, batch.rows.length)) recorded.keep(batch, ops, logits);
}

/** What a pass brought to the host: rows of logits, and their greedy tokens where a device has found them. */
interface Landed {
  readonly byteLength: number;
  /** F32 [logits rows, vocabSize] */
  readonly logits: () => Uint8Array;
  readonly chosen: Uint32Array | null;
}

/**
 * Tokens that a device chose come first, so that the next pass can begin before anybody looks at the logits; these wait in
 * page-locked memory until their digest is computed beside it.
 */
async function landing({ backend, model }: Engine, batch: ForwardBatch, logits: Span): Promise<Landed> {
  const later = backend.hostTier?.readLater;
  if (later === undefined) {
    const bytes = await backend.read(logits);
    return { byteLength: bytes.byteLength, logits: () => bytes, chosen: null };
  }
  const [chosen, landed] = await Promise.all([
    backend.read(subspan(model.chosen, 0, 4 * batch.logitsRows.length)),
    later(logits),
  ]);
  let bytes: Uint8Array | null = null;
  return {
    byteLength: logits.byteLength + chosen.byteLength,
    logits: () => {
      bytes ??= landed.take();
      return bytes;
    },
    chosen: new Uint32Array(chosen.slice().buffer),
  };
}

/** The read is queued behind the pass at once: waiting for its end first would add a way to the device and back. */
async function readBehind(pass: Pass, ended: Promise<void>, read: () => Promise<Landed>): Promise<Landed> {
  if (pass.observed) {
    await ended;
    return read();
  }
  const [end, landed] = await Promise.allSettled([ended, read()]);
  if (end.status === 'rejected') {
    if (landed.status === 'fulfilled') landed.value.logits(); // nobody else will take them
    throw end.reason;
  }
  if (landed.status === 'rejected') throw landed.reason;
  return landed.value;
}

/** Checks that a row is finite, or takes the device's word for it. */
function rowOf({ logits, chosen }: Landed, row: number, position: number, vocabSize: number): LogitsRow {
  const id = chosen?.[row] ?? noGreedyId;
  if (id !== noGreedyId) {
    let values: Float32Array | null = null;
    return new LogitsRow(id, () => {
      values ??= floatsOf(logits(), row, vocabSize);
      return values;
    });
  }
  const values = floatsOf(logits(), row, vocabSize);
  return new LogitsRow(greedyOfFinite(values, position), () => values);
}

/** F32 [vocabSize]; a single row is not copied again. */
function floatsOf(bytes: Uint8Array, row: number, vocabSize: number): Float32Array {
  const rowBytes = vocabSize * Float32Array.BYTES_PER_ELEMENT;
  const whole = bytes.byteLength === rowBytes && bytes.byteOffset % Float32Array.BYTES_PER_ELEMENT === 0;
  const part = whole ? bytes : bytes.slice(row * rowBytes, (row + 1) * rowBytes);
  return new Float32Array(part.buffer, part.byteOffset, vocabSize);
}
