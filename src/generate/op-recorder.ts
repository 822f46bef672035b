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
}

/** `--trace-ops DIR`: what every op of a run gave, for `waybill diff`. Slow and large; for looking, not for running. */
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
      return new OpRecorder(directory, index, await open(join(directory, 'values.bin'), 'w'));
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
    const bytes = await backend.read(output);
    const record: OpRecord = {
      sequence: this.#sequence++,
      pass,
      label,
      kind: op.kind,
      sha256: createHash('sha256').update(bytes).digest('hex'),
      byteOffset: this.#byteOffset,
      byteLength: bytes.byteLength,
    };
    this.#byteOffset += bytes.byteLength;
    try {
      await this.#values.writeFile(bytes);
      await this.#index.writeFile(`${JSON.stringify(record)}\n`);
    } catch (error) {
      throw storageError(error, 'record ops in', this.#directory, this.#byteOffset);
    }
  }

  async close(): Promise<void> {
    await this.#index.close();
    await this.#values.close();
  }
}
