import type { RuleProblem } from './protocol-rules.js';
import type { ArchivedArm, Arm, Protocol, SessionArm } from './protocol-schema.js';

/** What a schema cannot say of arms and the reference. */
export function armProblems({ arms, reference, model, gates }: Protocol): RuleProblem[] {
  const problems: RuleProblem[] = [];
  const add = (path: readonly (string | number)[], problem: string, code = 'protocol-invalid'): void => {
    problems.push({ code, path, problem });
  };
  const named: { arm: Arm; path: (string | number)[] }[] = [
    ...arms.map((arm, index) => ({ arm, path: ['arms', index] })),
    ...(reference === undefined ? [] : [{ arm: reference.arm, path: ['reference', 'arm'] }]),
  ];
  for (const [index, { arm, path }] of named.entries()) {
    if (named.slice(0, index).some((earlier) => earlier.arm.name === arm.name))
      add([...path, 'name'], `two arms are called "${arm.name}"`);
    if (arm.kind !== 'session') continue;
    if (model === undefined) add(path, `arm "${arm.name}" runs a model, and no model is given`);
    problems.push(...optionProblems(arm, path));
    if (arm.backend !== 'cpu' && arm.kernels !== 'auto')
      add(
        [...path, 'kernels'],
        `kernels "${arm.kernels}" have no effect with backend "${arm.backend}", want "auto"`,
      );
    if (arm.draft !== undefined) {
      add(
        [...path, 'draft'],
        `arm "${arm.name}" asks for a draft model, and no session of this version can use one: it has no drafting, no acceptance of drafted tokens and no metric of it`,
        'draft-not-built',
      );
    }
  }
  if (reference?.arm.kind === 'archive' && reference.when !== 'first')
    add(
      ['reference', 'when'],
      'results that an archive holds are there before the first trial, want "first"',
    );
  if (reference?.arm.kind === 'archive') {
    const { name, group }: ArchivedArm = reference.arm;
    const tokens = gates.findIndex(
      (gate) =>
        gate.check === 'tokens-equal' &&
        arms.some((arm) => gate.arms.includes(arm.name) && arm.group === group),
    );
    if (tokens >= 0) {
      add(
        ['gates', tokens],
        `tokens cannot be compared with "${name}": an archive holds them under a salt of its own, want "bit-equal"`,
      );
    }
  }
  return problems;
}

/** Options that only some arms have: stated where they decide something, absent where they would not. */
function optionProblems(arm: SessionArm, path: readonly (string | number)[]): RuleProblem[] {
  const wanted = {
    hostBudget: arm.backend === 'cuda',
    retain: arm.policy === 'retention',
    forecast: arm.policy === 'forecast',
  } as const;
  const problems = (['hostBudget', 'retain', 'forecast'] as const).flatMap((option): RuleProblem[] => {
    const given = arm[option] !== undefined;
    if (given === wanted[option]) return [];
    const problem = given
      ? `"${option}" has no effect in arm "${arm.name}"`
      : `arm "${arm.name}" does not state "${option}", want it stated`;
    return [{ code: 'protocol-invalid', path: given ? [...path, option] : [...path], problem }];
  });
  if (arm.retain?.startsWith('hot:') === true && arm.profile === undefined) {
    problems.push({
      code: 'protocol-invalid',
      path: [...path, 'retain'],
      problem: `arm "${arm.name}" does not state "profile", which "${arm.retain}" chooses from`,
    });
  }
  return problems;
}
