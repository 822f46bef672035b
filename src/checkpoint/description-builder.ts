import type { StoredType } from '../base/stored-type.js';
import { isSparse, type ModelConfig } from './model-config.js';
import type {
  MatrixDescription,
  MatrixRole,
  ModelDescription,
  TableDescription,
  VectorDescription,
} from './model-description.js';
import { type StoredTensor, usableType } from './stored-tensor.js';
import { TensorLookup } from './tensor-lookup.js';

/** What one projection takes from the checkpoint; `module` is its name there, without `.weight`. */
export interface MatrixRequest {
  readonly role: MatrixRole;
  readonly layer: number | null;
  readonly module: string;
  readonly inputs: number;
  readonly outputs: number;
  readonly bias: boolean;
}

export interface NormRequest {
  /** `layers.3.attention-norm`, `final-norm`, … */
  readonly id: string;
  readonly modules: string | readonly string[];
  readonly beta: boolean;
  readonly offset: 0 | 1;
}

/** Collects a description in the order of use, checking every tensor on the way. */
export class DescriptionBuilder {
  private readonly matrices: MatrixDescription[] = [];
  private readonly vectors: VectorDescription[] = [];
  private readonly tables: TableDescription[] = [];
  private readonly notes: string[] = [];
  private readonly lookup: TensorLookup;

  constructor(
    private readonly config: ModelConfig,
    private readonly tensors: ReadonlyMap<string, StoredTensor>,
    prefixes: readonly string[],
  ) {
    this.lookup = new TensorLookup(tensors, prefixes);
  }

  table(id: TableDescription['id'], module: string, rows: number, columns: number): void {
    const tensor = this.lookup.need(`${module}.weight`, [rows, columns]);
    this.tables.push({ id, rows, columns, type: usableType(tensor), sourceTensor: tensor.name });
  }

  matrix(request: MatrixRequest): void {
    const { role, layer, module, inputs, outputs } = request;
    const id = layer === null ? role : `layers.${layer}.${role}`;
    const tensor = this.lookup.need(`${module}.weight`, [outputs, inputs]);
    const byOutput = role === 'up' && isSparse(this.config.activation);
    this.matrices.push({
      id,
      role,
      layer,
      inputs,
      outputs,
      type: usableType(tensor),
      layout: byOutput ? 'output-major' : 'input-major',
      neuronAxis: byOutput ? 'outputs' : role === 'second' ? 'inputs' : null,
      biasId: request.bias ? `${id}.bias` : null,
      sourceTensor: tensor.name,
    });
    if (request.bias) this.vector(`${id}.bias`, `${module}.bias`, outputs, 0);
  }

  norm({ id, modules, beta, offset }: NormRequest): void {
    const names = (suffix: string) =>
      (typeof modules === 'string' ? [modules] : modules).map((module) => module + suffix);
    this.vector(`${id}.gamma`, names('.weight'), this.config.hiddenSize, offset);
    if (beta) this.vector(`${id}.beta`, names('.bias'), this.config.hiddenSize, 0);
  }

  /**
   * The head: the token table where the configuration ties them, whatever else the file holds. `differs` says that a
   * stored head holds other values than the token table.
   */
  head(inputs: number, differs: boolean): void {
    const table = this.tables[0]!;
    let source: { name: string; type: StoredType } = { name: table.sourceTensor, type: table.type };
    if (this.config.tied) {
      if (this.tensors.has(headTensor)) this.lookup.account(headTensor);
      if (differs) {
        this.notes.push(
          `"${headTensor}" is stored and differs from the token table, but the configuration ties them: the token table is used`,
        );
      }
    } else {
      const tensor = this.lookup.needExact(headTensor, [this.config.vocabSize, inputs]);
      source = { name: tensor.name, type: usableType(tensor) };
    }
    this.matrices.push({
      id: 'head',
      role: 'head',
      layer: null,
      inputs,
      outputs: this.config.vocabSize,
      type: source.type,
      layout: 'input-major',
      neuronAxis: null,
      biasId: null,
      sourceTensor: source.name,
    });
  }

  finish(): ModelDescription {
    const leftOver = this.lookup.leftOver();
    if (leftOver.length > 0) {
      const shown = leftOver.slice(0, 5).map((name) => `"${name}"`);
      this.notes.push(
        `ignored ${leftOver.length === 1 ? 'a tensor' : `${leftOver.length} tensors`} without a place in this configuration: ${shown.join(', ')}${leftOver.length > 5 ? ', …' : ''}`,
      );
    }
    if (!isSparse(this.config.activation)) {
      this.notes.push('not activation-sparse: packets would move everything');
    }
    const { config, matrices, vectors, tables, notes } = this;
    return { config, matrices, vectors, tables, notes };
  }

  private vector(id: string, names: string | readonly string[], width: number, offset: 0 | 1): void {
    const tensor = this.lookup.need(names, [width]);
    this.vectors.push({ id, width, offset, sourceTensor: tensor.name });
  }
}

/** The one name of a stored head. */
export const headTensor = 'lm_head.weight';
