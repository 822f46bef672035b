import { type StoredType, storedBytes } from '../../base/stored-type.js';
import { blockInputs } from '../ops.js';
import { type ChainStep, type Launch, type LaunchFacts, launch, type StepShape } from './launch.js';
import { paddedBlock } from './stream-shape.js';

/** As in cuda/weight-ring.cuh and cuda/chain.cu. */
const chainWarps = 20;
const ringBytes = 8192;
const partBytes = 80;
const tileColumns = 32;
export const stepBytes = 48 * 8;
const stepKinds = { linear: 0, attention: 1, active: 2 } as const;

/** Words of the barrier, to a line of their own. */
export const barrierBytes = 64;
/** Of the steps of all chains of a submission. */
export const mostChainBytes = 128 * 1024;
/** Fewer launches gain less from waiting together than the kernel costs to begin. */
const fewestSteps = 6;
/** Longer caches are read by more multiprocessors than one a head. */
const mostBlocksOfPositions = 16;
const oldestChains = 90;

/** A launch as a step: what it needs of shared memory beside the rings, and how many blocks of threads have work. */
interface Step {
  readonly launch: Launch;
  readonly shape: StepShape;
  readonly roomBytes: number;
  readonly pieces: number;
  readonly values: Readonly<Record<string, number>>;
}

/**
 * Puts launches of one row that follow one another into one kernel each (cuda/chain.cu), as long as what they need fits the
 * device. Pure; the bits are the same. Elsewhere launches stay as they are.
 */
export function joinLaunches(launches: readonly Launch[], facts: LaunchFacts): readonly Launch[] {
  if (facts.architecture < oldestChains || facts.chains !== true) return launches;
  const joined: Launch[] = [];
  const chain = new OpenChain(facts);
  let bytesLeft = mostChainBytes;
  const end = () => {
    const ended = chain.end();
    bytesLeft -= ended.chainBytes;
    joined.push(...ended.launches);
  };
  for (const one of launches) {
    const step = stepOf(one, facts);
    if (step !== null && chain.take(step, bytesLeft)) continue;
    end();
    if (step === null || !chain.take(step, bytesLeft)) joined.push(one);
  }
  end();
  return joined;
}

/** Steps that go together so far. */
class OpenChain {
  readonly #facts: LaunchFacts;
  #steps: Step[] = [];
  #weights: StoredType | null = null;
  #keys: 'f32' | 'f16' | null = null;
  #parts = 0;
  #roomBytes = 0;

  constructor(facts: LaunchFacts) {
    this.#facts = facts;
  }

  /** False where a step does not fit those that are there. */
  take(step: Step, bytesLeft: number): boolean {
    const { kind, type } = step.shape;
    const weights = kind === 'attention' ? this.#weights : (this.#weights ?? type);
    const keys = kind !== 'attention' ? this.#keys : (this.#keys ?? (type as 'f32' | 'f16'));
    if (kind === 'attention' ? keys !== type : weights !== type) return false;
    const parts = this.#parts + (kind === 'linear' ? 1 : 0);
    const roomBytes = Math.max(this.#roomBytes, step.roomBytes);
    if (sharedBytesOf(parts, roomBytes) > this.#facts.sharedBytes) return false;
    if (bytesOf(this.#steps.length + 1) > bytesLeft) return false;
    this.#steps.push(step);
    this.#weights = weights;
    this.#keys = keys;
    this.#parts = parts;
    this.#roomBytes = roomBytes;
    return true;
  }

  /** Ends with one launch, or with those that came where they are too few. */
  end(): { readonly launches: readonly Launch[]; readonly chainBytes: number } {
    const steps = this.#steps;
    const [weights, keys, parts, roomBytes] = [this.#weights, this.#keys, this.#parts, this.#roomBytes];
    this.#steps = [];
    this.#weights = this.#keys = null;
    this.#parts = this.#roomBytes = 0;
    if (steps.length < fewestSteps || weights === null) {
      return { launches: steps.map((step) => step.launch), chainBytes: 0 };
    }
    const first = steps[0]!.launch;
    const whole = launch(
      first.opIndex,
      `chain_${weights}_${keys ?? 'f16'}`,
      'ChainParams',
      {
        grid: [this.#facts.multiprocessors],
        threads: chainWarps * 32,
        sharedBytes: sharedBytesOf(parts, roomBytes),
        overlapsPrevious: first.overlapsPrevious,
      },
      { steps: 0, stepCount: steps.length, partCount: parts, barrier: 0 },
    );
    const chain = numbered(steps, this.#facts.multiprocessors);
    return { launches: [{ ...whole, chain }], chainBytes: bytesOf(steps.length) };
  }
}

function sharedBytesOf(parts: number, roomBytes: number): number {
  return chainWarps * ringBytes + 2 * stepBytes + parts * partBytes + roomBytes;
}

function bytesOf(steps: number): number {
  return barrierBytes + steps * stepBytes;
}

/** Work goes round the blocks of threads from step to step, so that each streams about as many weights. */
function numbered(steps: readonly Step[], blocks: number): ChainStep[] {
  let part = 0;
  let before = 0;
  return steps.map(({ launch: { structure }, shape, values, pieces }) => {
    const header = { kind: stepKinds[shape.kind], part, firstBlock: before % blocks };
    if (shape.kind === 'linear') part += 1;
    before += pieces;
    return { header, structure, values };
  });
}

function stepOf(one: Launch, facts: LaunchFacts): Step | null {
  const { step: shape, values } = one;
  if (shape === undefined) return null;
  switch (shape.kind) {
    case 'linear': {
      const blocks = Math.ceil(values.inputs! / blockInputs);
      const pieces = [values.outputs0!, values.outputs1!, values.outputs2!].reduce(
        (sum, outputs) => sum + Math.ceil(outputs / tileColumns),
        0,
      );
      const tiles = Math.ceil(pieces / facts.multiprocessors);
      const roomBytes = (blocks * paddedBlock + Math.max(1, tiles) * blocks * tileColumns) * 4;
      return { launch: one, shape, values, pieces, roomBytes };
    }
    case 'attention': {
      const blocks = Math.ceil(values.capacity! / blockInputs);
      if (blocks > mostBlocksOfPositions) return null;
      const query = Math.ceil(values.headDim! / 4) * 4;
      const roomBytes = (query + 32 + blocks * (blockInputs + values.headDim! + 1)) * 4;
      return { launch: one, shape, values, pieces: values.heads!, roomBytes };
    }
    case 'active':
      return activeStep(one, shape);
  }
}

const activeLanes = 8;
const compactBytes = (1024 + 32) * 4;
/** Of block sums, beside the inputs: more rounds cost less than a longer chain gains. */
const mostActiveBytes = 56 * 1024;

function activeStep(one: Launch, shape: StepShape): Step | null {
  const { width, outputs } = one.values;
  const columns = (activeLanes * 16) / storedBytes[shape.type];
  const blocks = Math.ceil(width! / blockInputs);
  const groups = (chainWarps * 32) / activeLanes;
  const fixedBytes = (groups * blockInputs + blocks + columns) * 4;
  const blocksPerRound = Math.min(blocks, Math.floor((mostActiveBytes - fixedBytes) / (columns * 4)));
  if (blocksPerRound < 1) return null;
  return {
    launch: one,
    shape,
    values: { ...one.values, blocksPerRound },
    pieces: Math.ceil(outputs! / columns) + 1,
    roomBytes: Math.max(compactBytes, fixedBytes + blocksPerRound * columns * 4),
  };
}
