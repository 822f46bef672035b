import { type PlacementRequest, planPlacement } from '../../src/acquire/plan.js';
import type { Backend } from '../../src/backend/backend.js';
import type { PreparedModel } from '../../src/checkpoint/prepared-model.js';
import { openSession, type Session } from '../../src/generate/session.js';
import { sessionOptions } from '../../src/generate/session-options.js';
import { kvBytes } from '../../src/memory/kv-cache.js';
import { planWorkspace } from '../../src/model/workspace.js';

/** What a placement has to know of the model and the backend, whatever its policy. */
export type Surroundings = Pick<
  PlacementRequest,
  'description' | 'tensor' | 'fixed' | 'maxRows' | 'hostTier'
>;

/** A session over weights that no checkpoint stands behind, in F16 keys and values, with prompts in one chunk. */
export function openPrepared(
  backend: Backend,
  prepared: PreparedModel,
  { model, capacity, promptTokens }: { model: string; capacity: number; promptTokens: number },
  placed: (surroundings: Surroundings) => PlacementRequest,
): Promise<Session> {
  const { description } = prepared;
  const { layers, kvHeads, headDim } = description.config;
  const kvShape = { layers, slots: 1, kvHeads, headDim, capacity, type: 'f16' } as const;
  const limits = { maxRows: promptTokens, maxLogitsRows: 1, capacity, parallelism: backend.parallelism };
  const workspace = planWorkspace(description, limits);
  const request = placed({
    description,
    tensor: (id) => prepared.tensor(id),
    fixed: [
      ...(backend.overheads ?? []),
      { label: 'kv cache', cause: 'kv', bytes: kvBytes(kvShape) },
      ...workspace.requests.map(({ label, cause, byteLength }) => ({ label, cause, bytes: byteLength })),
    ],
    maxRows: promptTokens,
    hostTier: backend.hostTier !== undefined,
  });
  const { policy, budgetBytes, streamLayout = 'packed' } = request;
  const options = sessionOptions({
    model,
    policy,
    streamLayout,
    budgetBytes,
    contextPositions: capacity,
    prefillChunk: promptTokens,
  });
  return openSession({
    options,
    directory: prepared.directory,
    prepared,
    choice: null,
    backendChoice: null,
    backend,
    placement: planPlacement(request),
    request,
    kvShape,
  });
}
