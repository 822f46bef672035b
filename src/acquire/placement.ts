import type { QuantisedType } from '../base/quantised-type.js';
import type { StoredType } from '../base/stored-type.js';
import type { LowBitName } from '../checkpoint/low-bit.js';
import type { MatrixRole } from '../checkpoint/model-description.js';
import type { BudgetComponent } from '../memory/budget.js';
import type { ForecastTiming } from './forecast-way.js';
import type { PolicyName, RowPath } from './policy.js';
import type { PassKind } from './weight-source.js';

/**
 * How the weights of a matrix reach an op: held and read whole, held with zero rows skipped, moved whole in every pass,
 * or moved row by row for active neurons in one of several ways. Quantised ones are held, as other numbers.
 */
export type WeightPath = 'resident' | QuantisedType | 'resident-sparse' | 'streamed' | RowPath;

/** Why a matrix whose rows belong to neurons is acquired densely all the same. */
export type DenseReason = 'dense-activation' | 'non-finite-weights';

export interface PlacedMatrix {
  readonly id: string;
  readonly role: MatrixRole;
  readonly layer: number | null;
  readonly bytes: number;
  readonly paths: Readonly<Record<PassKind, WeightPath>>;
  /** Set on `second` and `up` matrices that packets cannot serve exactly. */
  readonly denseReason: DenseReason | null;
  /** Index into `arenas` where rows are moved alone, else null. */
  readonly arena: number | null;
  /** Rows that have a place from one pass to the next. */
  readonly keptRows: number;
  /** Set where rows are fetched, or read, only for neurons that a certificate leaves undecided. */
  readonly certificate?: PlacedCertificate;
}

/** The low-bit copy that proves neurons of a first projection or gate inactive. */
export interface PlacedCertificate {
  readonly format: LowBitName;
  /** Directions of the layer's inputs along which residuals are stored. */
  readonly directions: number;
  readonly bytes: number;
}

/** `head`: looked up in the resident head, which holds the same weights. `rows`: read row by row from the file. */
export type TablePath = 'resident' | 'head' | 'rows';

export interface PlacedTable {
  readonly id: 'token-embedding' | 'position-embedding';
  readonly path: TablePath;
  readonly bytes: number;
  readonly rowBytes: number;
}

/**
 * Rows of one width and type: packet rows first, kept rows behind them, then as many rooms for guesses as can be in use
 * at once. Of staged packets the arena is the workspace that rows are scattered to, and the packet lies apart.
 */
export interface RowArena {
  readonly type: StoredType;
  readonly rowElements: number;
  readonly rowBytes: number;
  readonly packetRows: number;
  readonly keptRows: number;
  readonly guessRooms: number;
  readonly guessRows: number; // of one room
  readonly scatterRows: number;
}

/** What stays of rows that were active. `profile`: digest of the recorded activations that the hot set is chosen by. */
export type PlannedRetention =
  | { readonly kind: 'lru'; readonly rowsPerMatrix: number }
  | { readonly kind: 'hot'; readonly profile: string };

/** Slots that pieces of streamed matrices are read into. */
export interface StagingPlan {
  readonly slots: number;
  readonly slotBytes: number;
}

/** What one forward pass over one token moves by this placement. */
export interface MovedPerToken {
  /** Streamed matrices of a decode pass and of a prefill pass; a prefill pass moves them once for all its tokens. */
  readonly denseDecodeBytes: number;
  readonly densePrefillBytes: number;
  /** Neurons whose rows are moved alone, over all layers (each `up` and each `second` row counts). */
  readonly packetNeurons: number;
  /** Bytes if every one of those neurons were active and none kept. */
  readonly packetBytesAtFullActivity: number;
  /** Share of active neurons that the figures below assume. */
  readonly activeShare: number;
  readonly activeShareSource: 'given' | 'profile' | 'default';
  /** Rows and indices at that share, less what rows from before are expected to save, with what guesses waste. */
  readonly expectedPacketBytes: number;
  readonly embeddingBytes: number;
  /** Dense decode, expected packets and embedding. */
  readonly expectedBytes: number;
}

/** Rates of the link, in bytes per second; a placement predicts link time only. */
export interface LinkRates {
  readonly denseBytesPerSecond: number;
  readonly rowBytesPerSecond: number;
  /** Copies within the device, where there is one. */
  readonly deviceBytesPerSecond?: number;
}

/**
 * What moves in every pass. `resident`: nothing. `C`: rows of neurons alone. `B`: first projections, gates or the head,
 * too; as many dense bytes are held as the attention projections have. `A`: fewer are.
 */
export type Regime = 'resident' | 'A' | 'B' | 'C';

/** Where every weight lies and how it comes: frozen, plain JSON, decided before a byte is allocated or moved. */
export interface Placement {
  readonly policy: PolicyName;
  /** Whether results have the bits of the checkpoint's weights. */
  readonly exact: boolean;
  readonly regime: Regime;
  /** A gated FFN with sparse gates: `up` and `second` rows both follow the active set. */
  readonly gated: boolean;
  /** Null for no limit. */
  readonly budgetBytes: number | null;
  /** Rows (tokens) of the largest pass. */
  readonly maxRows: number;
  readonly matrices: readonly PlacedMatrix[];
  readonly tables: readonly PlacedTable[];
  readonly staging: StagingPlan | null;
  readonly arenas: readonly RowArena[];
  /** Neurons that the active set and the slot list have room for; 0 where none is needed. */
  readonly activeNeurons: number;
  readonly components: readonly BudgetComponent[];
  readonly totalBytes: number;
  /** Smallest budget that this policy would accept for the same request. */
  readonly minimumBytes: number;
  readonly moved: MovedPerToken;
  readonly retention: PlannedRetention | null;
  readonly forecast: ForecastTiming | null;
  /** Digest of the activation profile whose tables guess; absent where the pass before does. */
  readonly guesser?: string;
  /** Set where second projections come strided, else absent. */
  readonly streamLayout?: 'strided';
  /** Why the policy cannot help here, and what is done instead. */
  readonly notes: readonly string[];
  /** Milliseconds that the link needs for an expected decode token; null without rates. */
  readonly predictedMsPerToken: number | null;
}
