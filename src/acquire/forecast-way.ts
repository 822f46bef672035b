import { type Span, subspan } from '../memory/buffers.js';
import type { MoveCause } from '../memory/causes.js';
import type { GuessProjection, GuessTable } from './guess-table.js';
import { planRounds, type Round, type RoundPlan, runsOf } from './rounds.js';
import { type RowPlace, type RowReader, regionsOf } from './row-reader.js';
import type { LayerInput, RowWay } from './row-way.js';
import type { PassKind } from './weight-source.js';

/**
 * `early`: guesses are fetched from the begin of a layer on, beside its attention and first projection. `late`: the same
 * guesses when the active set is known, as the control that shows what the overlap is worth.
 */
export const forecastTimings = ['early', 'late'] as const;
export type ForecastTiming = (typeof forecastTimings)[number];

/**
 * `previous`: the active set of the pass before. `residual`: what a learned table makes of the layer's input, which the
 * residual of the layer before decides.
 */
export const guessers = ['previous', 'residual'] as const;
export type Guesser = (typeof guessers)[number];

/** A guesser that looks at a layer's input. */
export interface ResidualGuesser {
  readonly projection: GuessProjection;
  readonly table: GuessTable;
  /** Rows to guess, as far as the room goes. */
  readonly rows: number;
}

/** Where guessed rows land. */
export interface GuessRoom {
  readonly firstSlot: number;
  readonly rows: number;
}

interface Guess {
  readonly neurons: Uint32Array; // ascending
  readonly landing: Promise<void>;
}

/**
 * Guesses that the active set of a token is that of the pass before, as far as the room goes, lowest neurons first; or, with a
 * residual guesser, the likeliest neurons by the layer's input. `onDevice`: what a device guesses by in passes that the host has no
 * part in. Only decode passes guess. What the guess has not is read on demand, what it has too much was read for nothing.
 */
export class ForecastWay implements RowWay {
  readonly heldRows = 0;
  readonly #reader: RowReader;
  readonly #place: RowPlace;
  readonly #packetRows: number;
  readonly #room: GuessRoom;
  readonly #timing: ForecastTiming;
  readonly #before: Uint32Array; // what is guessed next, cut to the room
  #beforeCount = 0;
  readonly #residual: ResidualGuesser | null;
  readonly #onDevice: Span | null;
  #guess: Guess | null = null;

  constructor(
    reader: RowReader,
    place: RowPlace,
    packetRows: number,
    room: GuessRoom,
    timing: ForecastTiming,
    residual: ResidualGuesser | null = null,
    onDevice: Span | null = null,
  ) {
    this.#onDevice = onDevice;
    this.#residual = residual;
    this.#reader = reader;
    this.#place = place;
    this.#packetRows = packetRows;
    this.#room = room;
    this.#timing = timing;
    this.#before = new Uint32Array(room.rows);
  }

  readsInput(kind: PassKind): boolean {
    return this.#residual !== null && kind === 'decode';
  }

  enterLayer(kind: PassKind, input: LayerInput | null): void {
    if (this.#residual !== null && input !== null) this.#foresee(this.#residual, input);
    if (this.#timing === 'early' && kind === 'decode') this.#issue();
  }

  async plan(active: Uint32Array, kind: PassKind): Promise<RoundPlan> {
    if (this.#timing === 'late' && kind === 'decode') this.#issue();
    const guess = this.#guess;
    if (guess !== null) await this.#reader.wait(guess.landing);
    this.#guess = null;
    const neurons = guess?.neurons ?? new Uint32Array();
    let next = 0;
    const plan = planRounds(active, {
      packetRows: this.#packetRows,
      keptSlot: (neuron) => {
        while (next < neurons.length && neurons[next]! < neuron) next += 1;
        return neurons[next] === neuron ? this.#room.firstSlot + next : -1;
      },
      offer: () => -1,
    });
    this.#charge('forecast-used', plan.keptHits);
    this.#charge('forecast-wasted', neurons.length - plan.keptHits);
    this.#place.counters.guessedUsed += plan.keptHits;
    this.#place.counters.guessedWasted += neurons.length - plan.keptHits;
    if (this.#residual === null) {
      this.#beforeCount = Math.min(active.length, this.#room.rows);
      this.#before.set(active.subarray(0, this.#beforeCount));
    } else this.#beforeCount = 0;
    if (this.#onDevice !== null) this.#tellDevice(this.#onDevice);
    return { ...plan, keptHits: 0 };
  }

  async move(round: Round): Promise<void> {
    await this.#reader.read(this.#place, 'packet-rows', round.runs, round.movedRows);
  }

  async reset(): Promise<void> {
    const guess = this.#guess;
    if (guess === null) return;
    this.#guess = null;
    await guess.landing.catch(() => {}); // the pass has failed for this or for another reason
    this.#charge('forecast-wasted', guess.neurons.length);
    this.#place.counters.guessedWasted += guess.neurons.length;
  }

  /** Passes of few rows guess there. The set has come to the host, so no op reads what it guessed by before. */
  #tellDevice(set: Span): void {
    const words = Uint32Array.of(this.#beforeCount, ...this.#before.subarray(0, this.#beforeCount));
    const { backend } = this.#reader.mover;
    backend.write(subspan(set, 0, words.byteLength), new Uint8Array(words.buffer));
  }

  #foresee({ projection, table, rows }: ResidualGuesser, input: LayerInput): void {
    const features = input.rows.map((row) => projection.features(row));
    const guessed = table.guess(features, Math.min(rows * features.length, this.#room.rows));
    this.#beforeCount = guessed.length;
    this.#before.set(guessed);
  }

  #issue(): void {
    if (this.#beforeCount === 0 || this.#guess !== null) return;
    const neurons = this.#before.slice(0, this.#beforeCount);
    const runs = runsOf(neurons, (position) => this.#room.firstSlot + position);
    const landing = this.#reader.mover.read(this.#place.description.id, regionsOf(this.#place, runs));
    landing.catch(() => {}); // surfaces where the guess is looked at
    this.#guess = { neurons, landing };
  }

  #charge(cause: MoveCause, rows: number): void {
    if (rows === 0) return;
    const { description, rowBytes } = this.#place;
    const { layer, id } = description;
    this.#reader.ledger.move(cause, rows * rowBytes, rows, {
      layer,
      id,
      regions: rows,
      from: 'disk',
      to: 'ram',
    });
  }
}
