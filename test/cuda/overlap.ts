/** A stretch of device time, in milliseconds from any common begin. */
export interface Stretch {
  readonly beganMs: number;
  readonly endedMs: number;
}

/** How moving weights and computing share the time of decode passes, on average over them, by the device's clock. */
export interface OverlapFigures {
  readonly computeMs: number;
  readonly copyMs: number;
  /** Share of the time of copies during which kernels ran, too; null where nothing was copied. */
  readonly regionOverlap: number | null;
  /** Copies ran and no kernel did: what a pass waits for. */
  readonly exposedWaitMs: number;
  /** Neither ran: the device waits for the host. */
  readonly dispatchGapMs: number;
}

/** From the first begin to the last end of both kinds. Stretches may overlap and come in any order. */
export function overlapFigures(
  compute: readonly Stretch[],
  copies: readonly Stretch[],
  passes: number,
): OverlapFigures {
  const edges = [...edgesOf(compute, 0), ...edgesOf(copies, 1)].sort((a, b) => a.at - b.at);
  const open: [number, number] = [0, 0];
  const spent = { compute: 0, copy: 0, both: 0, neither: 0 };
  edges.forEach(({ at, kind, step }, index) => {
    const length = index === 0 ? 0 : at - edges[index - 1]!.at;
    const [computing, copying] = [open[0] > 0, open[1] > 0];
    if (computing) spent.compute += length;
    if (copying) spent.copy += length;
    if (computing && copying) spent.both += length;
    if (!computing && !copying) spent.neither += length;
    open[kind] += step;
  });
  return {
    computeMs: spent.compute / passes,
    copyMs: spent.copy / passes,
    regionOverlap: spent.copy === 0 ? null : spent.both / spent.copy,
    exposedWaitMs: (spent.copy - spent.both) / passes,
    dispatchGapMs: spent.neither / passes,
  };
}

interface Edge {
  readonly at: number;
  readonly kind: 0 | 1;
  readonly step: 1 | -1;
}

function edgesOf(stretches: readonly Stretch[], kind: 0 | 1): Edge[] {
  return stretches.flatMap(({ beganMs, endedMs }): Edge[] => [
    { at: beganMs, kind, step: 1 },
    { at: endedMs, kind, step: -1 },
  ]);
}
