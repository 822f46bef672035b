import { hostBytesOf } from '../acquire/mirror-weights.js';
import type { Placement } from '../acquire/placement.js';
import type { Backend } from '../backend/backend.js';
import { openBackend, requireGpu } from '../backend/open.js';
import { formatByteSize } from '../base/byte-size.js';
import { BudgetError, ExecutionError, SetupError } from '../base/errors.js';
import { impliedBackend } from './implied-backend.js';
import type { SessionHooks, SessionOptions } from './session-options.js';

/** What `auto` came to, and why. */
export interface BackendChoice {
  readonly backend: 'cpu' | 'cuda';
  /** A sentence without its full stop. */
  readonly reason: string;
}

/** What is planned on a backend: enough to know whether it can be held there. */
interface Planned {
  readonly placement: Placement;
}

/** Plans on a backend that is open; `choice` is null where one was named. The backend is closed where it throws. */
export type PlanOn<Plan> = (
  backend: Backend,
  choice: BackendChoice | null,
  onNote: SessionHooks['onNote'],
) => Promise<Plan>;

/** Contexts of a GPU take more, whatever the device (326 MiB on an H200): a smaller budget need not open one to be refused. */
export const leastContextBytes = 64 * 1024 * 1024;

/** A machine without a GPU is nothing to be told about; it is in plans and in `--json` all the same. */
const ordinaryReasons: ReadonlySet<string> = new Set(['no-cuda-driver', 'no-gpu']);

/**
 * Opens the backend that options name, and plans on it. `auto`: on a GPU where one can be set up and holds the plan, else on
 * the CPU; notes say why not where the machine has a GPU. Throws what opening and planning throw, of `auto` on the CPU.
 */
export async function planOnBackend<Plan extends Planned>(
  options: SessionOptions,
  onNote: SessionHooks['onNote'],
  plan: PlanOn<Plan>,
): Promise<Plan> {
  const name = options.backend === 'auto' ? impliedByValues(options) : options.backend;
  if (name !== 'auto') return planOn(options, name, onNote, (backend) => plan(backend, null, onNote));
  const notes: string[] = [];
  let refusal: SetupError | BudgetError | ExecutionError;
  try {
    await requireGpu();
    requireContextRoom(options);
    const planned = await planOn(options, 'cuda', onNote, async (backend) => {
      const choice = { backend: 'cuda', reason: `a GPU is there: ${backend.info.reason}` } as const;
      const made = await plan(backend, choice, (note) => notes.push(note));
      requireRoom(backend, made.placement);
      return made;
    });
    for (const note of notes) onNote?.(note);
    return planned;
  } catch (error) {
    if (!(error instanceof SetupError || error instanceof BudgetError || error instanceof ExecutionError))
      throw error;
    refusal = error;
  }
  const reason = reasonOf(refusal, options);
  if (!ordinaryReasons.has(refusal.code)) onNote?.(`computing on the CPU: ${reason}`);
  const choice = { backend: 'cpu', reason } as const;
  return planOn(options, 'cpu', onNote, (backend) => plan(backend, choice, onNote));
}

/** `auto` that was said, not left open: what cannot be had on both is had on one. */
function impliedByValues({ threads: _, device, ...others }: SessionOptions): SessionOptions['backend'] {
  return impliedBackend({ ...others, ...(device === 0 ? {} : { device }) });
}

async function planOn<Plan>(
  { kernels, threads, device, numerics }: SessionOptions,
  name: Exclude<SessionOptions['backend'], 'auto'>,
  onNote: SessionHooks['onNote'],
  plan: (backend: Backend) => Promise<Plan>,
): Promise<Plan> {
  const backend = await openBackend({ name, kernels, threads, device, numerics, onNote });
  try {
    return await plan(backend);
  } catch (error) {
    await backend.close();
    throw error;
  }
}

/** In a line: a refused placement lists every component, which says little where another one was made in its place. */
function reasonOf(
  { message, data }: SetupError | BudgetError | ExecutionError,
  { budgetBytes }: SessionOptions,
): string {
  const least = data.minimumBytes;
  if (typeof least !== 'number') return message;
  return `Cannot use a GPU in a budget of ${formatByteSize(budgetBytes)}: at least ${formatByteSize(least)} are needed there, its context among them`;
}

function requireContextRoom({ budgetBytes }: SessionOptions): void {
  if (budgetBytes >= leastContextBytes) return;
  throw new BudgetError(
    'budget-too-small',
    `Cannot use a GPU in a budget of ${formatByteSize(budgetBytes)}: its context alone takes more`,
    { budgetBytes },
  );
}

/** What another process may take away again before it is allocated: then opening fails, as on a backend that was named. */
function requireRoom({ freeBytes, overheads = [], hostTier }: Backend, placement: Placement): void {
  const opened = overheads.reduce((sum, { bytes }) => sum + bytes, 0);
  const wanted = placement.totalBytes - opened;
  if (freeBytes !== undefined && wanted > freeBytes) {
    throw new SetupError(
      'out-of-memory',
      `Cannot hold ${formatByteSize(wanted)} on the GPU: ${formatByteSize(freeBytes)} of its memory are free; give a --budget`,
      { wantedBytes: wanted, freeBytes },
    );
  }
  const pinned = hostTier === undefined ? 0 : hostBytesOf(placement) + (hostTier.bounceBytes ?? 0);
  const available = process.availableMemory();
  if (pinned <= available) return;
  throw new SetupError(
    'out-of-pinned-memory',
    `Cannot keep what is not on the GPU in host memory: ${formatByteSize(pinned)} would be pinned, ${formatByteSize(available)} are available`,
    { pinnedBytes: pinned, availableBytes: available },
  );
}
