/** What the tests read of a command's `--json`. */
export interface RequestJson {
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly finishReason: string;
  readonly promptTokens: number;
  readonly digests: { readonly logits: readonly string[] };
}

type Counts = Readonly<Record<string, string>>;

export interface RunJson extends RequestJson {
  /** Of a batch; one request's fields stand in the object itself. */
  readonly requests: readonly RequestJson[];
  readonly status: string;
  readonly policy: string;
  readonly budgetBytes: string | null;
  readonly backend: { name: string; kernels: string; threads: number; numerics: string };
  readonly bytes: { readonly moved: Counts; readonly setupMoved: Counts };
  readonly peaks: { readonly heldBytes: string; readonly held: Counts };
}

export interface PlanJson {
  readonly placement: {
    readonly policy: string;
    readonly regime: string;
    readonly budgetBytes: number | null;
    readonly minimumBytes: number;
    readonly totalBytes: number;
    readonly predictedMsPerToken: number | null;
    readonly components: readonly { readonly label: string; readonly bytes: number }[];
  };
}

export interface PreparedJson {
  readonly directory: string;
  readonly preparedNow: boolean;
  readonly manifestDigest: string;
}
