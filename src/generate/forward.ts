import type { PassKind } from '../acquire/weight-source.js';
import { type OpObserver, Pass } from '../backend/pass.js';
import { logitsDigest } from '../base/digest.js';
import { NumericsError } from '../base/errors.js';
import type { ForwardBatch } from '../model/batch.js';
import { nonFiniteFinder } from '../model/non-finite.js';
import type { Engine } from './engine.js';
import { checkFinite } from './sampler.js';

/** A row of logits on the host, with its digest. */
export interface LogitsRow {
  readonly logits: Float32Array; // [vocabSize]
  readonly digest: string;
}

/**
 * Runs one pass and brings the wanted logits to the host. After a failure the source is put back into a state that
 * the next pass can start from. `next` says which pass follows, so that weights can be read ahead for it.
 *
 * @throws NumericsError `kv-overflow`; `non-finite` that names op, layer and position where a logit is no number
 */
export function forward(engine: Engine, batch: ForwardBatch, next: PassKind | null): Promise<LogitsRow[]> {
  return engine.turn.pass(async () => {
    try {
      return await compute(engine, batch, next, engine.observer);
    } catch (error) {
      if (!(error instanceof NumericsError) || error.code !== 'non-finite-logit') throw error;
      // A pass writes only what it has written before, so it can run again to be watched
      await compute(engine, batch, null, nonFiniteFinder(batch));
      throw error;
    }
  });
}

async function compute(
  engine: Engine,
  batch: ForwardBatch,
  next: PassKind | null,
  observer: OpObserver | null,
): Promise<LogitsRow[]> {
  const pass = new Pass(engine.backend, observer);
  try {
    engine.source.expect(next);
    await engine.source.begin(pass, batch.kind);
    const logits = await engine.model.forward(pass, batch);
    await engine.source.end(pass);
    if (batch.logitsRows.length === 0) return [];
    const bytes = await engine.backend.read(logits);
    engine.ledger.move('logits-readback', bytes.byteLength, batch.logitsRows.length);
    const rowBytes = engine.vocabSize * Float32Array.BYTES_PER_ELEMENT;
    return batch.logitsRows.map((_, row) => {
      const part = bytes.slice(row * rowBytes, (row + 1) * rowBytes);
      const logits = new Float32Array(part.buffer, part.byteOffset, engine.vocabSize);
      checkFinite(logits, batch.rows[batch.logitsRows[row]!]!.position);
      return { logits, digest: logitsDigest(logits) };
    });
  } catch (error) {
    await pass.flush().catch(() => {}); // the first failure is the one to tell
    await engine.source.reset();
    throw error;
  }
}
