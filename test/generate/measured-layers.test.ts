import { expect, test } from 'vitest';
import { openWeightSource } from '../../src/acquire/open.js';
import type { WeightSource } from '../../src/acquire/weight-source.js';
import type { PlacedOp } from '../../src/backend/ops.js';
import { Pass } from '../../src/backend/pass.js';
import { firstLayers, layerBytes, RoomSource } from '../../src/generate/measured-layers.js';
import { spanOf } from '../../src/memory/buffers.js';
import { KvCache } from '../../src/memory/kv-cache.js';
import { Ledger } from '../../src/memory/ledger.js';
import { createModel } from '../../src/model/open-model.js';
import { openWorkspace, planWorkspace } from '../../src/model/workspace.js';
import { describe as describeModel, gatedConfig, optConfig } from '../acquire/support/opt-shape.js';
import { writePrepared } from '../acquire/support/prepared-file.js';
import { openOracle, plan } from '../acquire/support/session.js';

const shape = { hiddenSize: 64, ffnSize: 256, layers: 3, heads: 2, vocabSize: 90, maxPositions: 20 };

test.each([
  ['OPT', optConfig(shape)],
  ['a gated model', gatedConfig(shape)],
])(
  'measured layers of %s are the ops of its decode passes, with rows skipped and without',
  async (_, config) => {
    const prepared = writePrepared(describeModel(config, 'f16'), 7, () => 'mixed');
    const backend = await openOracle();
    const { description } = prepared;
    const { layers, kvHeads, headDim, ffnSize } = config;
    const limits = { maxRows: 1, maxLogitsRows: 1, capacity: 4, parallelism: backend.parallelism };
    const workspace = openWorkspace(backend, planWorkspace(description, limits));
    const cache = new KvCache(backend, { layers, slots: 1, kvHeads, headDim, capacity: 4, type: 'f32' });
    const opsOf = async (source: WeightSource): Promise<readonly PlacedOp[]> => {
      const pass = new Pass(backend);
      const model = createModel(description, source, workspace, cache, backend);
      await source.begin(pass, 'decode');
      await model.forward(pass, {
        kind: 'decode',
        rows: [{ slot: 0, position: 2, tokenId: 0 }],
        logitsRows: [0],
      });
      await pass.flush();
      const ops = pass.onlySubmission!;
      await source.end(pass);
      return ops.filter(({ label }) => label.startsWith('layers.'));
    };
    const sketch = ({ label, op }: PlacedOp) => {
      const { inputs, outputs, rows, width, count } = op as unknown as Record<string, unknown>;
      const matrix = 'matrix' in op ? [op.matrix.span.byteLength, op.matrix.layout, op.matrix.rowStride] : [];
      return [label, op.kind, inputs, outputs, rows, width, count, ...matrix];
    };
    const room = (byteLength: number) =>
      spanOf(backend.allocate({ label: 'room', cause: 'workspace', byteLength }));
    const all = layerBytes(description).whole * layers;
    for (const policy of ['resident', 'resident-sparse'] as const) {
      const placement = plan(prepared, policy, 1);
      const real = await openWeightSource({ placement, backend, prepared, ledger: new Ledger() });
      const expected = await opsOf(real);
      await real.close();
      const measured = new RoomSource(firstLayers(description, layers), {
        weights: room(all),
        vector: room(4 * ffnSize),
        pattern: policy === 'resident' ? null : room(4 * ffnSize),
        active: room(4 * (1 + ffnSize)),
        ids: room(4),
      });
      expect((await opsOf(measured)).map(sketch)).toEqual(expected.map(sketch));
      expect(measured.denseBytes + measured.neuronBytes).toBe(all);
      expect(measured.sets).toBe(
        policy === 'resident' ? 0 : expected.filter(({ op }) => op.kind === 'compact').length,
      );
    }
    await backend.close();
    await prepared.close();
  },
);
