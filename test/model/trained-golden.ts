import { readFileSync } from 'node:fs';
import type { Backend } from '../../src/backend/backend.js';
import { openCheckpoint } from '../../src/checkpoint/checkpoint.js';
import { readValues } from './checkpoint-values.js';
import { argmax, Harness, relativeL2 } from './harness.js';

interface GoldenCase {
  readonly prompt_ids: readonly number[];
  readonly greedy_ids: readonly number[];
  readonly logits: string;
}

/** How a greedy continuation compares with the golden one. */
export interface GoldenComparison {
  readonly name: string;
  readonly promptTokens: number;
  readonly ids: readonly number[];
  readonly goldenIds: readonly number[];
  /** Relative L2 of each golden logits row, which stand at these steps. */
  readonly distances: readonly { readonly step: number; readonly relativeL2: number }[];
}

/**
 * Continues every golden prompt greedily: the prompt in chunks whose inner ones give no logits, then token by token.
 * The file `golden.logits` holds the logits of the steps that its metadata's `rows` lists, or of all, and of each row
 * every `columnStep`th: what differs anywhere before the head differs in all of them, and the ids chosen are of all.
 */
export async function compareWithGolden(
  backend: Backend,
  modelDirectory: string,
  golden: { cases: string; logits: string },
  chunk: number,
): Promise<GoldenComparison[]> {
  const { cases } = JSON.parse(readFileSync(golden.cases, 'utf8')) as { cases: readonly GoldenCase[] };
  const rows = readRows(golden.logits);
  const checkpoint = await openCheckpoint(modelDirectory);
  try {
    const longest = Math.max(...cases.map((one) => one.prompt_ids.length + one.greedy_ids.length));
    const harness = new Harness(backend, checkpoint.description, await readValues(checkpoint), {
      capacity: longest,
      maxRows: chunk,
      maxLogitsRows: 1,
      mode: 'active',
    });
    const comparisons: GoldenComparison[] = [];
    for (const one of cases) comparisons.push(await compareCase(harness, one, rows, chunk));
    return comparisons;
  } finally {
    await checkpoint.close();
  }
}

async function compareCase(
  harness: Harness,
  golden: GoldenCase,
  rows: GoldenRows,
  chunk: number,
): Promise<GoldenComparison> {
  const place = (tokenId: number, position: number) => ({ slot: 0, position, tokenId });
  const prompt = golden.prompt_ids.map(place);
  let logits: Float32Array | undefined;
  for (let begin = 0; begin < prompt.length; begin += chunk) {
    const part = prompt.slice(begin, begin + chunk);
    const last = begin + chunk >= prompt.length;
    [logits] = await harness.run(part, last ? [part.length - 1] : [], 'prefill');
  }
  const ids: number[] = [];
  const distances: { step: number; relativeL2: number }[] = [];
  for (let step = 0; step < golden.greedy_ids.length; step++) {
    const wanted = rows.row(golden.logits, step);
    if (wanted !== null) distances.push({ step, relativeL2: relativeL2(rows.columns(logits!), wanted) });
    ids.push(argmax(logits!));
    if (step + 1 < golden.greedy_ids.length) {
      [logits] = await harness.run([place(ids.at(-1)!, prompt.length + step)]);
    }
  }
  return {
    name: golden.logits,
    promptTokens: prompt.length,
    ids,
    goldenIds: golden.greedy_ids,
    distances,
  };
}

interface GoldenRows {
  /** Golden logits of a step, or null where the file has none. */
  row(name: string, step: number): Float32Array | null;
  /** Those of a whole row that golden rows have. */
  columns(logits: Float32Array): Float32Array;
}

interface Header {
  readonly [name: string]: {
    readonly shape: readonly [number, number];
    readonly data_offsets: readonly [number, number];
  };
}

/** Golden files are F32 safetensors of our own making; `rows` of their metadata lists the steps kept, absent is all. */
function readRows(path: string): GoldenRows {
  const file = readFileSync(path);
  const headerLength = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + headerLength)) as Header & {
    __metadata__?: { rows?: string; columnStep?: string };
  };
  const steps = header.__metadata__?.rows?.split(',').map(Number);
  const columnStep = Number(header.__metadata__?.columnStep ?? 1);
  return {
    columns: (logits) => logits.filter((_, column) => column % columnStep === 0),
    row(name, step) {
      const index = steps === undefined ? step : steps.indexOf(step);
      const entry = header[name];
      if (index < 0 || entry === undefined) return null;
      const width = entry.shape[1];
      const at = 8 + headerLength + entry.data_offsets[0] + index * width * 4;
      return new Float32Array(file.buffer.slice(file.byteOffset + at, file.byteOffset + at + width * 4));
    },
  };
}
