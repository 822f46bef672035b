import type { Backend } from '../backend/backend.js';
import { DefectError } from '../base/errors.js';
import type { MatrixDescription } from '../checkpoint/model-description.js';
import { type Span, subspan } from '../memory/buffers.js';
import { type ActivationProfile, byUse, profileDigest } from './activation-profile.js';
import type { BoundMatrix } from './bound-matrix.js';
import { type ForecastTiming, ForecastWay, type GuessRoom, type ResidualGuesser } from './forecast-way.js';
import { GuessProjection, GuessTable } from './guess-table.js';
import { type GuessedRows, guessedRows } from './guessed-rows.js';
import { HeldRows, HeldWay } from './held-rows.js';
import { HotRows, hotIndexBytes } from './hot-rows.js';
import { KeptRows } from './kept-rows.js';
import type { Load } from './load-weights.js';
import { LruRows, lruIndexBytes } from './lru-rows.js';
import type { DirectSpans } from './open-direct.js';
import { ExtentWay, PacketWay } from './packet-way.js';
import type { PlacedMatrix, PlannedRetention, RowArena } from './placement.js';
import { rowPaths } from './policy.js';
import { runsOf } from './rounds.js';
import type { FedMatrix } from './row-feed.js';
import { type RowPlace, type RowReader, regionsOf } from './row-reader.js';
import type { RowStore } from './row-store.js';
import type { RowWay } from './row-way.js';
import { type Packet, StagedWay } from './staged-way.js';
import type { LayerCounters } from './stats.js';

/** An arena with the bytes that it was given. */
export interface OpenedArena {
  readonly plan: RowArena;
  readonly span: Span;
  readonly packet: Packet | null;
}

/** What retained rows have on a device that looks them up by itself. */
export interface OnDevice {
  /** Of all matrices, one behind another. */
  readonly index: Span;
  /** U32 [matrices]; the first serves every lookup whose count nobody asks for. */
  readonly hits: Span;
}

export interface WayBuilderParts {
  readonly backend: Backend;
  readonly reader: RowReader;
  readonly arenas: readonly OpenedArena[];
  readonly retention: PlannedRetention | null;
  readonly onDevice: OnDevice | null;
  /** Set where ops read rows from the host; their matrices are numbered as they are bound. */
  readonly direct: DirectSpans | null;
  readonly profile: ActivationProfile | null;
  readonly forecast: ForecastTiming | null;
  /** Digest of the profile whose tables guess; null: the pass before does. */
  readonly guesser: string | null;
  /** Of a layer's input. */
  readonly inputWidth: number;
  /** The matrices whose rows are moved alone. */
  readonly fed: readonly PlacedMatrix[];
}

/** Rows that stay, from `firstSlot` of the arena on; `hot`: the neurons of a fixed set, ascending. */
interface KeptStore {
  readonly rows: RowStore;
  readonly firstSlot: number;
  readonly hot: Uint32Array | null;
}

/** Where guessed rows of a matrix lie; `rows` is null where the host guesses alone. */
interface Guessing {
  readonly room: GuessRoom;
  readonly rows: GuessedRows | null;
}

/** Gives each matrix whose rows are moved alone its part of an arena and its way. */
export class WayBuilder {
  readonly loads: Load[] = [];
  readonly #parts: WayBuilderParts;
  #projection: GuessProjection | null = null;
  readonly #nextKept: number[];
  #nextWord = 0; // byte offset in the index on the device
  #nextPlace = 0;
  readonly #guessesOf = new Map<string, number>(); // rooms taken, by arena and layer

  constructor(parts: WayBuilderParts) {
    this.#parts = parts;
    this.#nextKept = parts.arenas.map(({ plan }) => plan.packetRows);
  }

  bind(bound: BoundMatrix, counters: LayerCounters): FedMatrix {
    const { plan, span } = this.#parts.arenas[bound.placed.arena!]!;
    const place = { ...bound, rowBytes: plan.rowBytes, arena: span, counters };
    const store = this.#store(bound, place);
    const held = this.#held(bound, place, store);
    const guess = this.#guess(bound, place);
    this.#nextPlace += 1;
    const way = this.#way(bound, place, store, held, guess);
    return {
      ...place,
      way,
      ...(held === null ? {} : { held }),
      ...(guess?.rows == null ? {} : { guess: guess.rows }),
    };
  }

  #way(
    bound: BoundMatrix,
    place: RowPlace,
    store: KeptStore | null,
    held: HeldRows | null,
    guess: Guessing | null,
  ): RowWay {
    const { backend, reader, arenas, forecast, onDevice } = this.#parts;
    const { plan, packet } = arenas[bound.placed.arena!]!;
    const { packetRows } = plan;
    const path = rowPaths.find((known) => Object.values(bound.placed.paths).includes(known));
    switch (path) {
      case 'packets':
        return new PacketWay(reader, place, packetRows, store?.rows ?? null, 'packet-rows');
      case 'certified': {
        const cause = bound.placed.certificate === undefined ? 'packet-rows' : 'uncertain-rows';
        return new PacketWay(reader, place, packetRows, store?.rows ?? null, cause);
      }
      case 'retained':
        if (held?.index.replaces === true) {
          const hits = subspan(onDevice!.hits, 0, 4);
          return new HeldWay(reader, place, packetRows, held, hits);
        }
        return new PacketWay(reader, place, packetRows, store?.rows ?? null, 'retention-misses');
      case 'extents':
        return new ExtentWay(reader, place, packetRows, neuronsOf(bound.description));
      case 'staged':
        return new StagedWay(backend, reader, place, packet!);
      case 'forecast': {
        const { room, rows } = guess!;
        const residual = this.#residual(bound);
        return new ForecastWay(reader, place, packetRows, room, forecast!, residual, rows?.set ?? null);
      }
      case undefined:
        throw new DefectError(`Cannot feed "${bound.description.id}": its rows are not moved alone`);
    }
  }

  #residual({ description }: BoundMatrix): ResidualGuesser | null {
    const { guesser, profile, inputWidth } = this.#parts;
    if (guesser === null) return null;
    const recorded = profile?.guesser?.tables.find(({ id }) => id === description.id);
    if (recorded === undefined || profile === null || profileDigest(profile) !== guesser) {
      throw new DefectError('Cannot guess rows: the activation profile is not the one that was planned by');
    }
    const counts = profile.matrices.find(({ id }) => id === description.id)!.counts;
    const uses = counts.reduce((sum, count) => sum + count, 0);
    this.#projection ??= new GuessProjection(inputWidth);
    return {
      projection: this.#projection,
      table: new GuessTable(recorded.weights),
      rows: Math.ceil(uses / profile.tokens),
    };
  }

  /** Places from one pass to the next; null where none were planned. */
  #store({ description, placed }: BoundMatrix, place: RowPlace): KeptStore | null {
    const { keptRows } = placed;
    const firstSlot = this.#nextKept[placed.arena!]!;
    this.#nextKept[placed.arena!] = firstSlot + keptRows;
    if (keptRows === 0) return null;
    const neurons = neuronsOf(description);
    const { retention, profile } = this.#parts;
    if (retention === null) return { rows: new KeptRows(neurons, firstSlot, keptRows), firstSlot, hot: null };
    if (retention.kind === 'lru') {
      return { rows: new LruRows(neurons, firstSlot, keptRows), firstSlot, hot: null };
    }
    if (profile === null || profileDigest(profile) !== retention.profile) {
      throw new DefectError(
        'Cannot load the hot set: its activation profile is not the one it was planned by',
      );
    }
    const counts = profile.matrices.find(({ id }) => id === description.id)?.counts;
    const hot = byUse(counts ?? new Array<number>(neurons).fill(0))
      .subarray(0, keptRows)
      .sort();
    const regions = regionsOf(
      place,
      runsOf(hot, (position) => firstSlot + position),
    );
    this.loads.push({ id: description.id, layer: description.layer, rows: hot.length, regions });
    return { rows: new HotRows(neurons, firstSlot, Array.from(hot)), firstSlot, hot };
  }

  /** The index of these places on the device, where ops there look rows up. */
  #held({ description, placed }: BoundMatrix, place: RowPlace, store: KeptStore | null): HeldRows | null {
    const { onDevice, backend, retention } = this.#parts;
    if (onDevice === null || store === null || retention === null) return null;
    const neurons = neuronsOf(description);
    const { keptRows } = placed;
    const byteLength = store.hot === null ? lruIndexBytes(neurons, keptRows) : hotIndexBytes(neurons);
    const words = subspan(onDevice.index, this.#nextWord, byteLength);
    this.#nextWord += byteLength;
    const span = subspan(place.arena, store.firstSlot * place.rowBytes, keptRows * place.rowBytes);
    return store.hot === null
      ? HeldRows.replacing(backend, words, neurons, keptRows, span)
      : HeldRows.fixed(backend, words, neurons, store.hot, span);
  }

  /** Null where rows are not guessed. */
  #guess(bound: BoundMatrix, { arena, rowBytes }: RowPlace): Guessing | null {
    const { arenas, forecast, direct } = this.#parts;
    const { plan } = arenas[bound.placed.arena!]!;
    if (forecast === null) return null;
    const own = this.#guessRoom(bound, plan);
    const firstSlot = plan.packetRows + plan.keptRows + own * plan.guessRows;
    const room = { firstSlot, rows: plan.guessRows };
    if (direct === null) return { room, rows: null };
    const before = arenas.slice(0, bound.placed.arena!).reduce((sum, one) => sum + one.plan.guessRooms, 0);
    const rows = guessedRows(direct, {
      timing: forecast,
      place: this.#nextPlace,
      neurons: neuronsOf(bound.description),
      room: before + own,
      places: plan.guessRows,
      span: subspan(arena, firstSlot * rowBytes, plan.guessRows * rowBytes),
    });
    return { room, rows };
  }

  /** Adjacent layers take turns with two sets of rooms: ops of one may still read while the next one guesses. */
  #guessRoom({ description, placed }: BoundMatrix, plan: RowArena): number {
    const { layer } = description;
    const key = `${placed.arena} ${layer}`;
    const within = this.#guessesOf.get(key) ?? 0;
    this.#guessesOf.set(key, within + 1);
    const ofArena = this.#parts.fed.filter(({ arena }) => arena === placed.arena);
    const layers = [...new Set(ofArena.map((matrix) => matrix.layer))];
    const sets = Math.min(2, layers.length);
    return (layers.indexOf(layer) % sets) * (plan.guessRooms / sets) + within;
  }
}

function neuronsOf(matrix: MatrixDescription): number {
  return matrix.neuronAxis === 'inputs' ? matrix.inputs : matrix.outputs;
}
