import type { Span } from '../memory/buffers.js';

/**
 * Where rows of one matrix lie between passes, in U32 words. By neuron: 0 where its row lies nowhere, else 1 + its place; with
 * `freshPlace` where `retain-rows` gave it the place for the set that it saw last, so that the row has yet to come there.
 * An index that `replaces` goes on: by place, 1 + its neuron or 0; the places, the one used longest ago first; and twice as
 * many words as places for the work of `retain-rows`.
 */
export interface RowIndex {
  readonly neurons: number;
  readonly places: number;
  /** Missing neurons get the places that were used longest ago; else places are never given anew. */
  readonly replaces: boolean;
  readonly span: Span; // rowIndexBytes
}

/** Added to a neuron's word. */
export const freshPlace = 0x8000_0000;

/** Words that the parts of an index begin at, and how many there are. */
export function rowIndexLayout({ neurons, places }: Pick<RowIndex, 'neurons' | 'places'>) {
  const neuronOf = neurons;
  const order = neuronOf + places;
  const used = order + places;
  const missing = used + places;
  return { neuronOf, order, used, missing, words: missing + places };
}

export function rowIndexBytes(index: Pick<RowIndex, 'neurons' | 'places' | 'replaces'>): number {
  return 4 * (index.replaces ? rowIndexLayout(index).words : index.neurons);
}

/** Words of an index that replaces and holds no row. */
export function emptyRowIndex(index: Pick<RowIndex, 'neurons' | 'places'>): Uint32Array {
  const { order, words } = rowIndexLayout(index);
  const empty = new Uint32Array(words);
  for (let place = 0; place < index.places; place += 1) empty[order + place] = place;
  return empty;
}

/** Words of a fixed index: the n-th of these neurons has place n. */
export function fixedRowIndex(neurons: number, held: Iterable<number>): Uint32Array {
  const words = new Uint32Array(neurons);
  let place = 0;
  for (const neuron of held) words[neuron] = ++place;
  return words;
}
