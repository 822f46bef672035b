import { z } from 'zod';
import type { JsonValue } from '../base/json.js';
import { readFields, tokenId, tokenIds } from './config-fields.js';

const schema = z.object({ bos_token_id: tokenId, eos_token_id: tokenIds });

/** Ids as a configuration states them; undefined where it says nothing, null where it says "none". */
export interface SpecialTokens {
  readonly bosTokenId: number | null | undefined;
  readonly eosTokenIds: readonly number[] | undefined;
}

/** Reads `bos_token_id` and `eos_token_id` (one id or a list), which both configuration files may hold. */
export function readSpecialTokens(config: JsonValue, place: string): SpecialTokens {
  const { bos_token_id: bos, eos_token_id: eos } = readFields(schema, config, place);
  const list = eos === null ? [] : typeof eos === 'number' ? [eos] : eos;
  return { bosTokenId: bos, eosTokenIds: list === undefined ? undefined : [...new Set(list)] };
}

/**
 * generation_config.json goes first, key by key, then config.json, then what transformers' configuration class of the
 * architecture fills in.
 */
export function mergeSpecialTokens(
  generation: SpecialTokens | null,
  config: SpecialTokens,
  defaults: { readonly bosTokenId: number | null; readonly eosTokenIds: readonly number[] },
): { bosTokenId: number | null; eosTokenIds: readonly number[] } {
  const first = <T>(...values: (T | undefined)[]): T | undefined =>
    values.find((value) => value !== undefined);
  return {
    bosTokenId: first(generation?.bosTokenId, config.bosTokenId, defaults.bosTokenId)!,
    eosTokenIds: first(generation?.eosTokenIds, config.eosTokenIds, defaults.eosTokenIds)!,
  };
}
