import { type ActivationProfile, makeProfile, type ProfiledMatrix } from '../acquire/activation-profile.js';
import { GuessLearner, GuessProjection, guessFeatures } from '../acquire/guess-table.js';
import type { Backend } from '../backend/backend.js';
import type { LinearOp, Op } from '../backend/ops.js';
import type { OpObserver } from '../backend/pass.js';
import { InputError } from '../base/errors.js';
import { isSparse } from '../checkpoint/model-config.js';
import type { ModelDescription } from '../checkpoint/model-description.js';
import type { Span } from '../memory/buffers.js';

interface Counter {
  readonly learner: GuessLearner | null;
  readonly counts: number[];
  repeats: number;
  /** By neuron: 1 where the token before used its row. */
  before: Uint8Array;
}

/**
 * Counts which rows a text needs, by watching the ops of its passes: of plain FFNs `second` where the activation is not
 * zero; of gated ones `up` where the gate is not zero and `second` where the product is not.
 */
export class ActivationCounter {
  readonly #width: number;
  readonly #gated: boolean;
  readonly #projection: GuessProjection | null;
  /** Of the layer that the pass is in, one a token. */
  #features: Float64Array[] = [];
  readonly #counters = new Map<string, Counter>();
  #tokens = 0;

  /** @throws InputError `dense-activation` */
  constructor({ config, matrices }: ModelDescription, learn = false) {
    if (!isSparse(config.activation)) {
      throw new InputError(
        'dense-activation',
        `Cannot profile a model with activation "${config.activation}": it is never exactly zero, so every row is always needed`,
        { activation: config.activation },
      );
    }
    this.#projection = learn ? new GuessProjection(config.hiddenSize) : null;
    this.#width = config.ffnSize;
    this.#gated = matrices.some(({ role }) => role === 'gate');
  }

  /** Fed tokens so far. */
  get tokens(): number {
    return this.#tokens;
  }

  readonly observer: OpObserver = async ({ op, label }, backend) => {
    if (op.kind === 'linear' && /^layers\.\d+\.query$/.test(label)) await this.#seeInput(op, backend);
    const watched = this.#watched(op, label);
    if (watched === null) return;
    const bytes = await backend.read(watched.x);
    const values = new Float32Array(bytes.slice().buffer);
    const counter = this.#counter(watched.id);
    for (let begin = 0; begin < values.length; begin += this.#width) {
      const row = values.subarray(begin, begin + this.#width);
      count(counter, row);
      counter.learner?.add(this.#features[begin / this.#width]!, row);
    }
    if (this.#counters.keys().next().value === watched.id) this.#tokens += values.length / this.#width;
  };

  /** What has been counted. */
  profile(sourceDigest: string): ActivationProfile {
    const matrices = Array.from(
      this.#counters,
      ([id, { counts, repeats }]): ProfiledMatrix => ({ id, counts, repeats }),
    );
    const tables = Array.from(this.#counters, ([id, { learner }]) => ({
      id,
      weights: learner?.weights() ?? '',
    }));
    const guesser = this.#projection === null ? undefined : { features: guessFeatures, tables };
    return makeProfile(sourceDigest, this.#tokens, matrices, guesser);
  }

  /** The input of the first product of a layer; a streamed one comes in pieces, each with the same. */
  async #seeInput(op: LinearOp, backend: Backend): Promise<void> {
    const projection = this.#projection;
    if (projection === null) return;
    const values = new Float32Array((await backend.read(op.x)).slice().buffer);
    this.#features = Array.from({ length: op.rows }, (_, row) =>
      projection.features(values.subarray(row * op.xStride, row * op.xStride + projection.width)),
    );
  }

  #watched(op: Op, label: string): { id: string; x: Span } | null {
    const layer = /^layers\.\d+/.exec(label)?.[0];
    if (layer === undefined) return null;
    if (op.kind === 'activate') return { id: `${layer}.${this.#gated ? 'up' : 'second'}`, x: op.x };
    return op.kind === 'gated-product' ? { id: `${layer}.second`, x: op.gate } : null;
  }

  #counter(id: string): Counter {
    let counter = this.#counters.get(id);
    if (counter === undefined) {
      counter = {
        learner: this.#projection === null ? null : new GuessLearner(this.#width),
        counts: new Array<number>(this.#width).fill(0),
        repeats: 0,
        before: new Uint8Array(this.#width),
      };
      this.#counters.set(id, counter);
    }
    return counter;
  }
}

function count(counter: Counter, row: Float32Array): void {
  const { counts, before } = counter;
  for (let neuron = 0; neuron < row.length; neuron += 1) {
    const active = row[neuron] !== 0; // NaN counts as active
    if (active) {
      counts[neuron]! += 1;
      counter.repeats += before[neuron]!;
    }
    before[neuron] = active ? 1 : 0;
  }
}
