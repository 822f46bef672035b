import { InputError } from '../base/errors.js';
import { type StoredTensor, usableType } from './stored-tensor.js';

/** Buffers that some versions of transformers and fairseq saved and that nothing needs. */
const harmless = /(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|masked_bias|decoder\.version|version)$/;

/**
 * Finds the tensors of a model in a checkpoint under the names that various savers gave them, checks type and shape,
 * and remembers which were asked for.
 */
export class TensorLookup {
  private readonly used = new Set<string>();

  /** `prefixes`: what may stand before a tensor's name, the usual one first. */
  constructor(
    private readonly tensors: ReadonlyMap<string, StoredTensor>,
    private readonly prefixes: readonly string[],
  ) {}

  /**
   * The tensor with one of these names behind one of the prefixes. Throws `InputError`: `tensor-missing` with its usual
   * name, `tensor-ambiguous` where two fit, `tensor-shape`, `tensor-type`, `tensor-layout`.
   */
  need(names: string | readonly string[], shape: readonly number[]): StoredTensor {
    const candidates = this.candidates(typeof names === 'string' ? [names] : names);
    return this.pick(candidates, shape);
  }

  /** As `need`, by full name without a prefix. */
  needExact(name: string, shape: readonly number[]): StoredTensor {
    return this.pick([name], shape);
  }

  /** Marks a tensor as accounted for without using it. */
  account(name: string): void {
    this.used.add(name);
  }

  /** Tensors that nothing asked for, without the known harmless ones. */
  leftOver(): string[] {
    return [...this.tensors.keys()].filter((name) => !this.used.has(name) && !harmless.test(name)).sort();
  }

  private candidates(names: readonly string[]): string[] {
    return names.flatMap((name) => this.prefixes.map((prefix) => prefix + name));
  }

  private pick(candidates: readonly string[], shape: readonly number[]): StoredTensor {
    const found = candidates.flatMap((name) => this.tensors.get(name) ?? []);
    const tensor = found[0];
    if (tensor === undefined) {
      const name = candidates[0]!;
      throw new InputError(
        'tensor-missing',
        `Reading the checkpoint failed: tensor "${name}" is absent, wanted with shape [${shape.join(', ')}]`,
        { tensor: name, tried: candidates },
      );
    }
    if (found.length > 1) {
      throw new InputError(
        'tensor-ambiguous',
        `Reading the checkpoint failed: "${tensor.name}" and "${found[1]!.name}" are both there, one of them is wanted`,
        { tensors: found.map((entry) => entry.name) },
      );
    }
    usableType(tensor);
    if (tensor.shape.length !== shape.length || tensor.shape.some((size, axis) => size !== shape[axis])) {
      throw new InputError(
        'tensor-shape',
        `Reading tensor "${tensor.name}" of "${tensor.file}" failed: its shape is [${tensor.shape.join(', ')}], the configuration wants [${shape.join(', ')}]`,
        { tensor: tensor.name, file: tensor.file, shape: tensor.shape, wanted: shape },
      );
    }
    this.used.add(tensor.name);
    return tensor;
  }
}
