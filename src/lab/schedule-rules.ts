import type { RuleProblem } from './protocol-rules.js';
import type { Protocol } from './protocol-schema.js';
import { orderProblem } from './schedule.js';

/** A gate on time between arms needs at least so many pairs, at its first look too. */
export const leastPairsOfRuntimeGate = 10;

/** What a schema cannot say of the schedule. */
export function scheduleProblems(protocol: Protocol): RuleProblem[] {
  const { arms, schedule, isolation } = protocol;
  const problems: RuleProblem[] = [];
  const names = arms.map(({ name }) => name);
  if (schedule.order === 'balanced') {
    if (arms.length > 1 && schedule.blocks % arms.length !== 0) {
      problems.push({
        code: 'order-unbalanced',
        path: ['schedule', 'blocks'],
        problem: `${schedule.blocks} blocks of ${arms.length} arms cannot be balanced, want a multiple of ${arms.length}`,
      });
    }
  } else {
    const problem = orderProblem(names, schedule.blocks, schedule.order);
    if (problem !== null)
      problems.push({ code: 'order-confounds-drift', path: ['schedule', 'order'], problem });
  }
  if (isolation === 'process-per-trial' && schedule.warmUps > 0) {
    problems.push({
      code: 'warm-up-without-effect',
      path: ['schedule', 'warmUps'],
      problem: `${schedule.warmUps} warm-ups warm nothing where each trial has a new process, want 0`,
    });
  }
  return [...problems, ...sequentialProblems(protocol)];
}

function sequentialProblems({ arms, schedule, gates, reference }: Protocol): RuleProblem[] {
  const { sequential, blocks } = schedule;
  if (sequential === undefined) return [];
  const { looks } = sequential;
  const problem = (text: string): RuleProblem[] => [
    { code: 'sequential-rule', path: ['schedule', 'sequential', 'looks'], problem: text },
  ];
  if (!gates.some(({ check }) => check === 'ratio-at-most'))
    return problem('no gate on a ratio of times could be decided early, want one, or no sequential rule');
  if (looks.some((look, index) => index > 0 && look <= looks[index - 1]!))
    return problem(`looks ${looks.join(', ')} do not rise`);
  if (looks.at(-1) !== blocks)
    return problem(`the last look comes after ${looks.at(-1)} blocks, want all ${blocks}`);
  if (looks[0]! < leastPairsOfRuntimeGate)
    return problem(`the first look comes after ${looks[0]} pairs, want at least ${leastPairsOfRuntimeGate}`);
  const odd = looks.find((look) => look % arms.length !== 0);
  if (odd !== undefined)
    return problem(`${odd} blocks of ${arms.length} arms are not balanced, want multiples of ${arms.length}`);
  if (reference?.when === 'last')
    return problem('a reference that comes last would have to be run between the looks, want it first');
  return [];
}
