import type { ForecastTiming } from '../../../src/acquire/forecast-way.js';
import { openWeightSource } from '../../../src/acquire/open.js';
import { type PlacementRequest, planPlacement } from '../../../src/acquire/plan.js';
import type { PolicyName } from '../../../src/acquire/policy.js';
import { openNull } from '../../../src/backend/null/open-null.js';
import type { StoredType } from '../../../src/base/stored-type.js';
import type { ModelDescription } from '../../../src/checkpoint/model-description.js';
import { Ledger } from '../../../src/memory/ledger.js';
import { driver } from './driver.js';
import { describe, emptyPrepared, optConfig } from './opt-shape.js';

const vocabSize = 50_272;
export const opt13 = optConfig({ hiddenSize: 2048, ffnSize: 8192, layers: 24, heads: 32, vocabSize });
export const opt27 = optConfig({ hiddenSize: 2560, ffnSize: 10240, layers: 32, heads: 32, vocabSize });
export const mib = 1024 * 1024;

export function request(
  description: ModelDescription,
  policy: PolicyName,
  extra: Partial<PlacementRequest> = {},
): PlacementRequest {
  const tensor = (id: string) => emptyTensors(description).tensor(id);
  return { description, tensor, policy, budgetBytes: Infinity, fixed: [], maxRows: 32, ...extra };
}

const prepared = new Map<ModelDescription, ReturnType<typeof emptyPrepared>>();
export function emptyTensors(description: ModelDescription) {
  const known = prepared.get(description) ?? emptyPrepared(description);
  prepared.set(description, known);
  return known;
}

/** Runs passes of a policy on the null backend; `counts` are active rows of a layer by pass. */
export async function run(options: {
  config: typeof opt13;
  type: StoredType;
  policy: PolicyName;
  prompts: number;
  newTokens: number;
  activeRows?: (layer: number, pass: number, width: number) => ArrayLike<number>;
  keepRows?: boolean;
  forecast?: ForecastTiming;
}) {
  const description = describe(options.config, options.type);
  const ledger = new Ledger();
  const backend = openNull({
    activeRows: ({ layer, pass, width }) => options.activeRows?.(layer!, pass, width) ?? [],
  });
  const placement = planPlacement(
    request(description, options.policy, {
      ...(options.keepRows === undefined ? {} : { keepRows: options.keepRows }),
      ...(options.forecast === undefined ? {} : { forecast: options.forecast }),
    }),
  );
  const model = emptyTensors(description);
  const source = await openWeightSource({ placement, backend, prepared: model, ledger });
  const drive = driver({ description, backend, source, maxRows: placement.maxRows });
  const setup = ledger.totals();
  for (let prompt = 0; prompt < options.prompts; prompt += 1) {
    for (let token = 0; token < options.newTokens; token += 1) {
      const last = prompt === options.prompts - 1 && token === options.newTokens - 1;
      source.expect(last ? null : token === options.newTokens - 1 ? 'prefill' : 'decode');
      await drive.pass(token === 0 ? 'prefill' : 'decode', token === 0 ? [5, 6, 7] : [5]);
    }
  }
  const totals = ledger.totals();
  await source.close();
  return { placement, setup, totals, counters: backend.counters, description };
}
