import { parseByteSize } from '../base/byte-size.js';
import { armProblems } from './arm-rules.js';
import type { Gate } from './gate-schema.js';
import { firstUseMetrics, isTimeMetric, processWideMetrics } from './metric-names.js';
import type { Arm, Protocol } from './protocol-schema.js';
import { leastPairsOfRuntimeGate, scheduleProblems } from './schedule-rules.js';

/** What a schema cannot say: rules between fields. */
export interface RuleProblem {
  readonly code: string;
  readonly path: readonly (string | number)[];
  readonly problem: string;
}

/** Everything that makes a protocol one whose verdict would mean nothing; empty for a good one. */
export function checkProtocol(protocol: Protocol): RuleProblem[] {
  return [
    ...armProblems(protocol),
    ...scheduleProblems(protocol),
    ...protocol.gates.flatMap((gate, index) => gateProblems(protocol, gate, index)),
    ...repeatedGates(protocol),
    ...foreignProblems(protocol),
  ];
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
  // A reference gives bits and bytes to compare with, and never times
  const timed = 'family' in gate && (gate.family === 'runtime' || gate.family === 'useful-latency');
  if ('arm' in gate) known('arm', gate.arm, timed ? measured : [...measured, reference]);
  if (gate.check === 'token-parity' || gate.check === 'relative-l2-at-most') {
    known('against', gate.against, [...measured, reference]);
    if (gate.arm === gate.against)
      add('protocol-invalid', 'against', 'an arm cannot be compared with itself');
    for (const arm of armsOf(protocol, [gate.arm, gate.against])) {
      if (keepsLogits(arm) || (gate.check === 'token-parity' && protocol.workload.includeContent)) continue;
      add(
        'protocol-invalid',
        arm.name === gate.arm ? 'arm' : 'against',
        `arm "${arm.name}" leaves nothing to compare, want "keepLogits: true" in it`,
      );
    }
  }
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

function foreignProblems({ foreignProcesses, arms, reference }: Protocol): RuleProblem[] {
  if (foreignProcesses === undefined) return [];
  const all: Arm[] = reference === undefined ? arms : [...arms, reference.arm];
  if (all.some((arm) => arm.kind === 'session' && ['cuda', 'auto'].includes(arm.backend))) return [];
  return [
    {
      code: 'protocol-invalid',
      path: ['foreignProcesses'],
      problem: '"foreignProcesses" has no effect where no arm uses a GPU',
    },
  ];
}

function keepsLogits(arm: Arm): boolean {
  return arm.kind === 'archive' || arm.keepLogits === true;
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
