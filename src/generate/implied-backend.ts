import { UsageError } from '../base/errors.js';
import type { SessionOptions } from './session-options.js';

/** Options of a session that decide where it computes. */
type Wishes = Partial<
  Pick<SessionOptions, 'kernels' | 'threads' | 'device' | 'hostBudgetBytes' | 'numerics' | 'streamLayout'>
>;

/**
 * The backend that options come to where they leave it open: `cpu` or `cuda` where one of them says something that only that one
 * has a use for, else `auto`. `names` are what the options are called in errors.
 *
 * @throws UsageError `option-without-effect` where options ask for both
 */
export function impliedBackend(
  given: Wishes,
  names: Readonly<Partial<Record<keyof Wishes, string>>> = {},
): 'cpu' | 'cuda' | 'auto' {
  const first = (wishes: readonly (readonly [keyof Wishes, boolean])[]): string | null => {
    const found = wishes.find(([, asked]) => asked)?.[0];
    return found === undefined ? null : (names[found] ?? `"${found}"`);
  };
  const ofCpu = first([
    ['kernels', given.kernels !== undefined && given.kernels !== 'auto'],
    ['threads', given.threads !== undefined],
  ]);
  const ofGpu = first([
    ['device', given.device !== undefined],
    ['hostBudgetBytes', given.hostBudgetBytes !== undefined && given.hostBudgetBytes !== Infinity],
    ['numerics', given.numerics === 'native'],
    ['streamLayout', given.streamLayout === 'strided'],
  ]);
  if (ofCpu !== null && ofGpu !== null) {
    throw new UsageError(
      'option-without-effect',
      `Cannot use ${ofCpu} together with ${ofGpu}: the first is for the cpu backend alone, the second for a GPU, want one of the two`,
    );
  }
  if (ofCpu !== null) return 'cpu';
  return ofGpu === null ? 'auto' : 'cuda';
}
