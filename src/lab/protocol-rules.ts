import { parseByteSize } from '../base/byte-size.js';
import type { Gate } from './gate-schema.js';
import { firstUseMetrics, isTimeMetric, processWideMetrics } from './metric-names.js';
import type { Arm, Protocol, SessionArm } from './protocol-schema.js';
import { orderProblem } from './schedule.js';

/** What a schema cannot say: rules between fields. */
export interface RuleProblem {
  readonly code: string;
  readonly path: readonly (string | number)[];
  readonly problem: string;
}

/** A gate on time between arms needs at least so many pairs. */
export const leastPairsOfRuntimeGate = 10;

/** Everything that makes a protocol one whose verdict would mean nothing; empty for a good one. */
export function checkProtocol(protocol: Protocol): RuleProblem[] {
  return [
    ...armProblems(protocol),
    ...scheduleProblems(protocol),
    ...protocol.gates.flatMap((gate, index) => gateProblems(protocol, gate, index)),
    ...repeatedGates(protocol),
  ];
}

function armProblems({ arms, reference, model }: Protocol): RuleProblem[] {
  const problems: RuleProblem[] = [];
  const named: { arm: Arm; path: (string | number)[] }[] = [
    ...arms.map((arm, index) => ({ arm, path: ['arms', index] })),
    ...(reference === undefined ? [] : [{ arm: reference.arm, path: ['reference', 'arm'] }]),
  ];
  for (const [index, { arm, path }] of named.entries()) {
    if (named.slice(0, index).some((earlier) => earlier.arm.name === arm.name)) {
      problems.push({
        code: 'protocol-invalid',
        path: [...path, 'name'],
        problem: `two arms are called "${arm.name}"`,
      });
    }
    if (arm.kind === 'session' && model === undefined) {
      problems.push({
        code: 'protocol-invalid',
        path,
        problem: `arm "${arm.name}" runs a model, and no model is given`,
      });
    }
    if (arm.kind === 'session') problems.push(...optionProblems(arm, path));
    if (arm.kind === 'session' && arm.backend !== 'cpu' && arm.kernels !== 'auto') {
      problems.push({
        code: 'protocol-invalid',
        path: [...path, 'kernels'],
        problem: `kernels "${arm.kernels}" have no effect with backend "${arm.backend}", want "auto"`,
      });
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
  return (['hostBudget', 'retain', 'forecast'] as const).flatMap((option): RuleProblem[] => {
    const given = arm[option] !== undefined;
    if (given === wanted[option]) return [];
    const problem = given
      ? `"${option}" has no effect in arm "${arm.name}"`
      : `arm "${arm.name}" does not state "${option}", want it stated`;
    return [{ code: 'protocol-invalid', path: given ? [...path, option] : [...path], problem }];
  });
}

function scheduleProblems({ arms, schedule, isolation }: Protocol): RuleProblem[] {
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
  return problems;
}

function gateProblems(protocol: Protocol, gate: Gate, index: number): RuleProblem[] {
  const path = ['gates', index];
  const problems: RuleProblem[] = [];
  const add = (code: string, field: string, problem: string): void => {
    problems.push({ code, path: [...path, field], problem: `gate "${gate.name}": ${problem}` });
  };
  const measured = protocol.arms.map(({ name }) => name);
  const reference = protocol.reference?.arm.name;
  const known = (field: string, name: string, allowed: readonly (string | undefined)[]): void => {
    if (!allowed.includes(name))
      add('protocol-invalid', field, `"${name}" is not one of ${allowed.filter(Boolean).join(', ')}`);
  };
  if (gate.check === 'bit-equal' || gate.check === 'tokens-equal') {
    for (const name of gate.arms) known('arms', name, [...measured, reference]);
    const groups = new Set(armsOf(protocol, gate.arms).map(({ group }) => group));
    if (groups.size > 1)
      add('protocol-invalid', 'arms', `its arms are of the groups ${[...groups].join(', ')}, want one`);
    const group = [...groups][0];
    const peers = armsOf(protocol, [...measured, ...(reference === undefined ? [] : [reference])]);
    if (groups.size === 1 && peers.filter((arm) => arm.group === group).length < 2) {
      add('protocol-invalid', 'arms', `nothing else is in group "${group}" to compare with`);
    }
  }
  if ('arm' in gate)
    known('arm', gate.arm, gate.check === 'ratio-at-most' ? measured : [...measured, reference]);
  if ('of' in gate) known('of', gate.of, [...measured, reference]);
  if ('metric' in gate) problems.push(...metricProblems(protocol, gate, index));
  if (gate.check === 'ratio-at-most') {
    known('against', gate.against, measured);
    if (gate.arm === gate.against)
      add('protocol-invalid', 'against', 'an arm cannot be compared with itself');
    if (protocol.schedule.blocks < leastPairsOfRuntimeGate) {
      add(
        'too-few-pairs',
        'check',
        `it has ${protocol.schedule.blocks} pairs, want at least ${leastPairsOfRuntimeGate}`,
      );
    }
  }
  return problems;
}

function metricProblems(
  protocol: Protocol,
  gate: Extract<Gate, { metric: unknown }>,
  index: number,
): RuleProblem[] {
  const problems: RuleProblem[] = [];
  const add = (code: string, problem: string): void => {
    problems.push({ code, path: ['gates', index, 'metric'], problem: `gate "${gate.name}": ${problem}` });
  };
  const timed = isTimeMetric(gate.metric);
  if (timed !== (gate.family === 'runtime' || gate.family === 'useful-latency')) {
    add('protocol-invalid', `metric "${gate.metric}" does not belong in family "${gate.family}"`);
  }
  if (protocol.isolation === 'process-per-trial') return problems;
  if (firstUseMetrics.includes(gate.metric)) {
    add(
      'start-order',
      `"${gate.metric}" needs a process that did nothing before, want isolation "process-per-trial"`,
    );
  }
  if (processWideMetrics.includes(gate.metric)) {
    const arms = [
      ...protocol.arms,
      ...(protocol.reference?.when === 'first' ? [protocol.reference.arm] : []),
    ];
    const bound = 'bound' in gate && !gate.bound.includes('.') ? BigInt(gate.bound) : null;
    const larger = arms.find((arm) => arm.name !== gate.arm && !fits(arm, bound));
    if (larger !== undefined) {
      add(
        'start-order',
        `arm "${larger.name}" may hold more in the same process before "${gate.arm}" does, want isolation "process-per-trial"`,
      );
    }
  }
  return problems;
}

function fits(arm: Arm, bound: bigint | null): boolean {
  if (bound === null || arm.kind !== 'session' || arm.budget === 'none') return false;
  return BigInt(parseByteSize(arm.budget)) <= bound;
}

function repeatedGates({ gates }: Protocol): RuleProblem[] {
  return gates.flatMap(({ name }, index) =>
    gates.findIndex((gate) => gate.name === name) < index
      ? [
          {
            code: 'protocol-invalid',
            path: ['gates', index, 'name'],
            problem: `two gates are called "${name}"`,
          },
        ]
      : [],
  );
}

function armsOf(protocol: Protocol, names: readonly string[]): Arm[] {
  const all = protocol.reference === undefined ? protocol.arms : [...protocol.arms, protocol.reference.arm];
  return all.filter(({ name }) => names.includes(name));
}
