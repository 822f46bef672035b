import { BudgetError } from '../../base/errors.js';
import type { BudgetComponent } from '../../memory/budget.js';
import type { DeviceUse, DeviceWatch } from '../backend.js';
import type { MemorySampler, UseReading } from './memory-sampler.js';

/**
 * Charged for what no call tells: graphs of decode passes, local memory of kernels that are loaded at their first launch,
 * and the rest of the last 2 MiB page of each buffer.
 */
const graphReserveBytes = 64 * 1024 * 1024;

/** What a context holds beside buffers, as far as its memory could be measured when it was made. */
export function contextOverheads(contextBytes: number | null): readonly BudgetComponent[] {
  if (contextBytes === null) return [];
  return [
    { label: 'cuda context and kernels', cause: 'runtime', bytes: contextBytes },
    { label: 'cuda graphs and page rounding', cause: 'runtime', bytes: graphReserveBytes },
  ];
}

/** Bytes of a backend's own buffers. */
interface BufferUsage {
  readonly deviceBytes: number;
  readonly devicePeakBytes: number;
  readonly pinnedBytes: number;
}

/** Compares samples with a limit, in the order in which they come; the first above it is told. */
export class SampledWatch implements DeviceWatch {
  readonly #device: number;
  readonly #sampler: MemorySampler;
  readonly #usage: () => BufferUsage;
  #exceeded: BudgetError | null = null;

  constructor(device: number, sampler: MemorySampler, usage: () => BufferUsage) {
    this.#device = device;
    this.#sampler = sampler;
    this.#usage = usage;
  }

  /** Throws what a sample above the limit has led to. */
  require(): void {
    if (this.#exceeded !== null) throw this.#exceeded;
  }

  start(limitBytes: number): void {
    this.#sampler.start(limitBytes, (bytes, source) => {
      this.#exceeded ??= deviceBudgetError(this.#device, bytes, limitBytes, source);
    });
  }

  async check(): Promise<void> {
    await this.#sampler.sample();
    this.require();
  }

  get use(): DeviceUse {
    const { deviceBytes, devicePeakBytes, pinnedBytes } = this.#usage();
    return {
      allocatedBytes: deviceBytes,
      allocatedPeakBytes: devicePeakBytes,
      pinnedBytes,
      sampled: this.#sampler.use,
    };
  }

  stop(): Promise<void> {
    return this.#sampler.stop();
  }
}

function deviceBudgetError(
  index: number,
  bytes: number,
  limitBytes: number,
  source: UseReading['source'],
): BudgetError {
  const whose =
    source === 'process'
      ? 'this process uses'
      : 'the device uses more than before by (other processes count, too)';
  return new BudgetError(
    'device-budget-exceeded',
    `Cannot go on with GPU ${index}: ${whose} ${bytes} bytes, the budget is ${limitBytes}`,
    { device: index, sampledBytes: bytes, budgetBytes: limitBytes, source },
  );
}
