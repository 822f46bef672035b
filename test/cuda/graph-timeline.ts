import { check, type DriverLibrary } from '../../src/backend/cuda/driver.js';
import { launchConfigLayout } from '../../src/backend/cuda/launch-config.js';
import type { Stretch } from './overlap.js';

type Handle = bigint | number;

/** CU_EVENT_RECORD_EXTERNAL: in a recording, a node of the graph that takes the time at each run. */
const external = 1;

/** Events of one graph: where its main stream stops to wait for what runs beside, goes on, and what runs beside. */
interface GraphMarks {
  readonly stops: bigint[];
  readonly goesOn: bigint[];
  readonly beside: { readonly began: bigint; readonly ended: bigint }[];
}

/**
 * Time stamps inside graphs whose launches run on two streams. The first is taken to compute, the second to copy. Each run of
 * a graph is laid behind the one before it, so that what the host does between passes is no part of the figures.
 */
export class GraphTimeline {
  readonly compute: Stretch[] = [];
  readonly copies: Stretch[] = [];
  /** Runs of graphs that are in the figures. */
  runs = 0;
  readonly #driver: DriverLibrary;
  readonly #marksOf = new Map<bigint, GraphMarks>();
  readonly #events: bigint[] = [];
  #main: Handle | null = null;
  #recorded: GraphMarks | null = null;
  #pending: { began: bigint; ended: bigint; marks: GraphMarks; stream: Handle } | null = null;
  #endMs = 0;

  /** `driver`: as it is without hooks. */
  constructor(driver: DriverLibrary) {
    this.#driver = driver;
  }

  /** Calls of the driver to put in the place of its own. */
  get hooks(): Partial<DriverLibrary> {
    const driver = this.#driver;
    return {
      cuStreamBeginCapture_v2: (stream, mode) => {
        this.#main = stream;
        this.#recorded = { stops: [], goesOn: [], beside: [] };
        return driver.cuStreamBeginCapture_v2(stream, mode);
      },
      cuStreamEndCapture: (stream, graph) => {
        this.#main = null;
        return driver.cuStreamEndCapture(stream, graph);
      },
      cuGraphInstantiateWithFlags: (room, graph, flags) => {
        const code = driver.cuGraphInstantiateWithFlags(room, graph, flags);
        const marks = this.#recorded;
        if (marks !== null && marks.beside.length > 0) this.#marksOf.set((room as BigUint64Array)[0]!, marks);
        return code;
      },
      cuStreamWaitEvent: (stream, event, flags) => {
        const marks = stream === this.#main ? this.#recorded : null;
        marks?.stops.push(this.#mark(stream));
        const code = driver.cuStreamWaitEvent(stream, event, flags);
        marks?.goesOn.push(this.#mark(stream));
        return code;
      },
      cuLaunchKernelEx: (config, ...rest) => {
        const { buffer, byteOffset } = config!;
        const stream = new DataView(buffer, byteOffset).getBigUint64(launchConfigLayout.hStream, true);
        if (this.#main === null || BigInt(this.#main) === stream)
          return driver.cuLaunchKernelEx(config, ...rest);
        const began = this.#mark(stream);
        const code = driver.cuLaunchKernelEx(config, ...rest);
        this.#recorded!.beside.push({ began, ended: this.#mark(stream) });
        return code;
      },
    };
  }

  get capturing(): boolean {
    return this.#main !== null;
  }

  /** Whether a graph is one that this looks into. */
  knows(executable: Handle): boolean {
    return this.#marksOf.has(BigInt(executable));
  }

  /** Runs such a graph; `counts`: it is to be in the figures. */
  launch(executable: Handle, stream: Handle, counts: boolean): number {
    this.harvest();
    const began = this.#event();
    this.#record(began, stream);
    const code = this.#driver.cuGraphLaunch(executable, stream);
    const ended = this.#event();
    this.#record(ended, stream);
    const marks = this.#marksOf.get(BigInt(executable))!;
    if (counts) this.#pending = { began, ended, marks, stream };
    return code;
  }

  /** Waits for the last run and reads its times, before another takes its place. */
  harvest(): void {
    const run = this.#pending;
    if (run === null) return;
    this.#pending = null;
    const driver = this.#driver;
    check(driver, 'cuStreamSynchronize', driver.cuStreamSynchronize(run.stream));
    const at = (event: bigint): number => {
      const elapsed = new Float32Array(1);
      check(driver, 'cuEventElapsedTime', driver.cuEventElapsedTime(elapsed, run.began, event));
      return this.#endMs + elapsed[0]!;
    };
    const { stops, goesOn, beside } = run.marks;
    [...stops, run.ended].forEach((stop, index) => {
      const begin = index === 0 ? run.began : goesOn[index - 1]!;
      this.compute.push({ beganMs: at(begin), endedMs: at(stop) });
    });
    for (const { began, ended } of beside) this.copies.push({ beganMs: at(began), endedMs: at(ended) });
    this.#endMs = at(run.ended);
    this.runs += 1;
  }

  close(): void {
    for (const event of this.#events) this.#driver.cuEventDestroy_v2(event);
  }

  #event(): bigint {
    const room = new BigUint64Array(1);
    check(this.#driver, 'cuEventCreate', this.#driver.cuEventCreate(room, 0));
    this.#events.push(room[0]!);
    return room[0]!;
  }

  #record(event: bigint, stream: Handle): void {
    check(this.#driver, 'cuEventRecord', this.#driver.cuEventRecord(event, stream));
  }

  /** A node of the graph that is recorded. */
  #mark(stream: Handle): bigint {
    const event = this.#event();
    const code = this.#driver.cuEventRecordWithFlags(event, stream, external);
    check(this.#driver, 'cuEventRecordWithFlags', code);
    return event;
  }
}
