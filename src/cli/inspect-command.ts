import { Command } from '@commander-js/extra-typings';
import { formatByteSize } from '../base/byte-size.js';
import { type Checkpoint, openCheckpoint } from '../checkpoint/checkpoint.js';
import { resolveModel } from '../checkpoint/hub.js';
import { isSparse } from '../checkpoint/model-config.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import type { StoredTensor } from '../checkpoint/stored-tensor.js';
import { flags } from './flags.js';
import { plainTable } from './plain-table.js';
import { Progress } from './progress.js';
import { openTerminal } from './terminal.js';

/** `waybill inspect`: what a checkpoint is, from its headers alone. */
export function inspectCommand() {
  return new Command('inspect')
    .addOption(flags.model())
    .addOption(flags.revision())
    .option('--tensors', 'list every tensor')
    .addOption(flags.json())
    .addOption(flags.quiet())
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const { directory } = await resolveModel(given.model, {
        revision: given.revision,
        onProgress: ({ file, doneBytes, totalBytes }) =>
          progress.bytes(`downloading ${file}`, doneBytes, totalBytes),
      });
      const checkpoint = await openCheckpoint(directory);
      try {
        terminal.print(inspection(checkpoint, given.tensors === true));
        if (terminal.json) terminal.printJson(inspectionJson(checkpoint, given.tensors === true));
      } finally {
        await checkpoint.close();
      }
    });
}

function inspection(checkpoint: Checkpoint, withTensors: boolean): string {
  const { config, description, tensors } = checkpoint;
  const stored = [...tensors.values()];
  const bytes = stored.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const lines = [
    `architecture  ${config.architecture} (${config.family})`,
    `sizes         hidden ${config.hiddenSize}, ${config.layers} layers, ${config.heads} heads (${config.kvHeads} key-value) of ${config.headDim}, FFN ${config.ffnSize}, vocabulary ${config.vocabSize}, positions ${config.maxPositions}`,
    `activation    ${config.activation}${config.family === 'llama' && config.gated ? ', gated' : ''}`,
    `head          ${config.tied ? 'tied to the token table' : 'its own'}`,
    `weights       ${stored.length} tensors, ${formatByteSize(bytes)} (${bytes} B) in ${new Set(stored.map(({ file }) => file)).size} files`,
    `packets       ${packetText(checkpoint)}`,
    ...description.notes.map((note) => `note          ${note}`),
  ];
  const text = `${lines.join('\n')}\n`;
  if (!withTensors) return text;
  const table = plainTable(['tensor', 'type', 'shape', 'file']);
  for (const { name, type, shape, file } of stored) table.push([name, type, shape.join(' x '), file]);
  return `${text}\n${table.toString()}\n`;
}

function packetText({ config, description }: Checkpoint): string {
  if (!isSparse(config.activation)) {
    return `none: "${config.activation}" gives no exact zeros, so every row would move`;
  }
  const eligible = description.matrices.filter(({ neuronAxis }) => neuronAxis !== null);
  const roles = [...new Set(eligible.map(({ role }) => role))].join(' and ');
  return `${eligible.length} matrices (${roles}), where finite: rows of zero activations need not move`;
}

function inspectionJson(
  { directory, config, description, tensors }: Checkpoint,
  withTensors: boolean,
): unknown {
  const eligibleOf = (matrix: MatrixDescription): boolean =>
    matrix.neuronAxis !== null && isSparse(config.activation);
  return {
    directory,
    config,
    matrices: description.matrices.map((matrix) => ({ ...matrix, packetEligible: eligibleOf(matrix) })),
    notes: description.notes,
    weights: {
      tensors: tensors.size,
      byteLength: [...tensors.values()].reduce((sum, { byteLength }) => sum + BigInt(byteLength), 0n),
    },
    ...(withTensors ? { tensors: [...tensors.values()].map(tensorJson) } : {}),
  };
}

function tensorJson({ name, type, shape, file, byteOffset, byteLength }: StoredTensor): unknown {
  return { name, type, shape, file, byteOffset: BigInt(byteOffset), byteLength: BigInt(byteLength) };
}
