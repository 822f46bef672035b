/** Counters of one layer over all passes so far; `up` and `second` rows of gated layers are added up. */
export interface LayerCounters {
  /** Active neurons of matrices that come by packets, by matrix and pass: unions over the tokens of a pass. */
  activeRows: number;
  /** Rows that were read on demand; of extents, inactive ones too. */
  movedRows: number;
  /** Rows that were found among the kept or retained ones. */
  keptHits: number;
  /** Rows that were guessed and needed, and guessed and not needed. */
  guessedUsed: number;
  guessedWasted: number;
  /** Neurons that certificates decided on, in passes over them, and those that they left undecided: unions over tokens. */
  judgedRows: number;
  uncertainRows: number;
  /** Ops that the active sets were divided into. */
  rounds: number;
  /** Pieces of streamed matrices used. */
  densePieces: number;
}

/** What a source has done since it was opened. */
export interface AcquisitionStats {
  readonly passes: number;
  readonly layers: readonly Readonly<LayerCounters>[];
  /** Nanoseconds that passes were blocked on reads of pieces and of rows. */
  readonly streamWaitNs: bigint;
  readonly rowWaitNs: bigint;
  /** Nanoseconds that reads took, each by itself. */
  readonly readNs: bigint;
  /** Pieces of matrices outside layers, in all. */
  readonly densePieces: number;
  /** Bytes of pieces that were used, and of pieces that were read ahead and dropped. */
  readonly streamUsedBytes: number;
  readonly streamDroppedBytes: number;
  /** Rows now kept or retained. */
  readonly keptRows: number;
}

export function newLayerCounters(): LayerCounters {
  return {
    activeRows: 0,
    movedRows: 0,
    keptHits: 0,
    guessedUsed: 0,
    guessedWasted: 0,
    judgedRows: 0,
    uncertainRows: 0,
    rounds: 0,
    densePieces: 0,
  };
}
