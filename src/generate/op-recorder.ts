import { createHash } from 'node:crypto';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import type { Backend } from '../backend/backend.js';
import { outputOf } from '../backend/op-output.js';
import type { PlacedOp } from '../backend/ops.js';
import type { OpObserver } from '../backend/pass.js';
import { storageError } from '../base/atomic-file.js';
import { UsageError } from '../base/errors.js';

/** One op of a recorded run; its values lie in `values.bin`, F32 little-endian (docs/formats/op-trace.md). */
export interface OpRecord {
  readonly sequence: number;
  /** Forward pass, counted from 1. */
  readonly pass: number;
  readonly label: string;
  readonly kind: string;
  readonly sha256: string;
  readonly byteOffset: number;
  readonly byteLength: number;
  /** On products that were computed in native numerics; runs of different modes are not compared. */
  readonly numerics?: 'native';
}

/**
 * `--trace-ops DIR`: what every op of a run gave, for `waybill diff`. Slow and large; for looking, not for running.
 *
 * An `active-outputs` op is named without values: it leaves the columns of inactive neurons as they were, so its
 * output holds leftovers there, which the gated product that follows drops. Every NaN is recorded as one NaN, since
 * which one an op gives is no part of the contract (docs/numerics.md).
 */
export class OpRecorder {
  readonly #directory: string;
  readonly #index: FileHandle;
  readonly #values: FileHandle;
  #sequence = 0;
  #byteOffset = 0;

  private constructor(directory: string, index: FileHandle, values: FileHandle) {
    this.#directory = directory;
    this.#index = index;
    this.#values = values;
  }

  /** @throws UsageError `file-exists` when the folder holds a record already; SetupError */
  static async open(directory: string): Promise<OpRecorder> {
    try {
      await mkdir(directory, { recursive: true });
      const index = await open(join(directory, 'ops.jsonl'), 'wx');
      try {
        return new OpRecorder(directory, index, await open(join(directory, 'values.bin'), 'w'));
      } catch (error) {
        await index.close();
        throw error;
      }
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'EEXIST') {
        throw new UsageError(
          'file-exists',
          `Cannot record ops in "${directory}": it holds a record, want a new folder`,
        );
      }
      throw storageError(error, 'record ops in', directory, 0);
    }
  }

  /** Records every op; `pass` tells the number of the running pass. */
  observer(pass: () => number): OpObserver {
    return (placed, backend) => this.#record(pass(), placed, backend);
  }

  async #record(pass: number, { label, op }: PlacedOp, backend: Backend): Promise<void> {
    const output = outputOf(op);
    if (output === null) return;
    const bytes = op.kind === 'active-outputs' ? new Uint8Array() : oneNan(await backend.read(output));
    const record: OpRecord = {
      sequence: this.#sequence++,
      pass,
      label,
      kind: op.kind,
      sha256: createHash('sha256').update(bytes).digest('hex'),
      byteOffset: this.#byteOffset,
      byteLength: bytes.byteLength,
      ...('numerics' in op && op.numerics === 'native' ? { numerics: 'native' } : {}),
    };
    this.#byteOffset += bytes.byteLength;
    try {
      await this.#values.writeFile(bytes);
      await this.#index.writeFile(`${JSON.stringify(record)}\n`);
    } catch (error) {
      throw storageError(error, 'record ops in', this.#directory, this.#byteOffset);
    }
  }

  /** Idempotent. */
  async close(): Promise<void> {
    await this.#index.close();
    await this.#values.close();
  }
}

/** The F32 values with every NaN written alike. */
function oneNan(bytes: Uint8Array): Uint8Array {
  const copy = bytes.slice();
  const values = new Float32Array(copy.buffer);
  const words = new Uint32Array(copy.buffer);
  for (const [index, value] of values.entries()) if (Number.isNaN(value)) words[index] = 0x7fc00000;
  return copy;
}
