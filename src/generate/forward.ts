import type { PassKind } from '../acquire/weight-source.js';
import { Pass } from '../backend/pass.js';
import { logitsDigest } from '../base/digest.js';
import type { ForwardBatch } from '../model/batch.js';
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
 */
export async function forward(
  engine: Engine,
  batch: ForwardBatch,
  next: PassKind | null,
): Promise<LogitsRow[]> {
  const pass = new Pass(engine.backend, engine.observer);
  try {
    await engine.source.begin(pass, batch.kind);
    engine.source.expect(next);
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
