import type { Audit } from '../audit.js';
import { type JudgedArchive, type JudgedPart, partSummary } from '../lab-receipt.js';
import { protocolChanges } from '../protocol-chain.js';
import type { Arm } from '../protocol-schema.js';
import type { Block, Cell } from './document.js';
import { statusText } from './verdict-sections.js';

/** What was said before anything was measured. */
export function designSection({ part }: JudgedPart): Block[] {
  const { protocol } = part.protocol;
  const { workload, schedule } = protocol;
  const facts: [string, Cell][] = [
    ['Protocol', protocol.name],
    ['Frozen', protocol.frozen?.at ?? 'not frozen'],
    ...(protocol.supersedes === undefined
      ? []
      : [['Supersedes', `${protocol.supersedes.digest}: ${protocol.supersedes.reason}`] as [string, Cell]]),
    [
      'Workload',
      `${workload.kind}; ${part.manifest.items.length} items; at most ${workload.newTokens} new tokens a prompt`,
    ],
    [
      'Order',
      `${schedule.order === 'balanced' ? 'balanced' : 'spelled out'}; ${schedule.blocks} blocks; ${schedule.warmUps} warm-ups an arm; seed ${schedule.seed}`,
    ],
    ...(schedule.sequential === undefined
      ? []
      : [
          [
            'Looks',
            `after ${schedule.sequential.looks.join(', ')} blocks; ${schedule.sequential.spending} spending`,
          ] as [string, Cell],
        ]),
    ['Isolation', protocol.isolation],
  ];
  const [earlier] = part.superseded;
  const changes = earlier === undefined ? [] : protocolChanges(earlier, part.protocol);
  return [
    { kind: 'heading', level: 2, text: 'Design' },
    { kind: 'facts', facts },
    {
      kind: 'table',
      caption: 'Arms, as the protocol states them',
      head: ['Arm', 'Group', 'Configuration'],
      rows: [
        ...protocol.arms.map((arm) => [arm.name, arm.group, armText(arm)]),
        ...(protocol.reference === undefined
          ? []
          : [
              [
                `${protocol.reference.arm.name} (reference, ${protocol.reference.when})`,
                protocol.reference.arm.group,
                armText(protocol.reference.arm),
              ],
            ]),
      ],
    },
    ...(changes.length === 0
      ? []
      : [
          {
            kind: 'table',
            caption: 'What this protocol changed of the one that it supersedes',
            head: ['Field', 'Before', 'Now'],
            rows: changes.map(({ path, before, after }) => [path, valueText(before), valueText(after)]),
          } as const,
        ]),
  ];
}

function valueText(value: unknown): string {
  return value === undefined ? 'nothing' : JSON.stringify(value);
}

function armText(arm: Arm): string {
  if (arm.kind === 'command') return `command: ${arm.command.join(' ')}`;
  if (arm.kind === 'archive') return `arm ${arm.arm} of the archive with SHA-256 ${arm.archive.sha256}`;
  const stated = [
    `policy ${arm.policy}`,
    ...(arm.retain === undefined ? [] : [`retain ${arm.retain}`]),
    ...(arm.forecast === undefined ? [] : [`forecast ${arm.forecast}`]),
    ...(arm.profile === undefined ? [] : [`profile ${arm.profile.file}`]),
    `backend ${arm.backend} (${arm.kernels})`,
    ...(arm.numerics === undefined ? [] : [`${arm.numerics} numerics`]),
    `${arm.threads} threads`,
    `KV ${arm.kv}`,
    `budget ${arm.budget}`,
    ...(arm.hostBudget === undefined ? [] : [`host budget ${arm.hostBudget}`]),
    ...(arm.model === undefined ? [] : [`model ${arm.model.path}`]),
    ...Object.entries(arm.options ?? {}).map(([name, value]) => `${name} ${value}`),
    ...(arm.samples ? [] : ['recording off']),
  ];
  return stated.join(', ');
}

/** What did not go as scheduled, and every failure, kept. */
export function deviationSection({ run, attempts }: JudgedArchive): Block[] {
  const { deviations, violations } = run.evaluation;
  const failures = run.part.records.flatMap((record) => {
    if (record.kind !== 'trial' || record.error === null) return [];
    return [`Record ${record.sequence} (${record.slot.arm}): ${record.error.message} [${record.error.code}]`];
  });
  const ended = run.selection.ended?.error;
  const items = [
    ...violations.map((text) => `Violation: ${text}`),
    ...deviations,
    ...failures,
    ...(ended === null || ended === undefined
      ? []
      : [`The run ended with: ${ended.message} [${ended.code}]`]),
  ];
  return [
    { kind: 'heading', level: 2, text: 'Deviations and failures' },
    items.length === 0
      ? { kind: 'paragraph', text: 'None: every trial ran once, in its place.' }
      : { kind: 'list', items },
    ...(attempts.length === 0
      ? []
      : [
          {
            kind: 'table',
            caption: 'Earlier attempts, kept with their records',
            head: ['Attempt', 'Began', 'Records', 'How it ended', 'Verdict'],
            figures: [2],
            rows: attempts.map((attempt, index) => {
              const { startedAt, records, status, verdict } = partSummary(attempt);
              return [String(index + 1), startedAt, String(records), statusText(status), { verdict }];
            }),
          } as const,
        ]),
  ];
}

export function nonClaimSection({ part }: JudgedPart): Block[] {
  return [
    { kind: 'heading', level: 2, text: 'What this does not show' },
    { kind: 'list', items: part.protocol.protocol.nonClaims },
  ];
}

/** Digests, and what was checked of them. */
export function digestSection({ run, noise }: JudgedArchive, audit: Audit | null): Block[] {
  const { part } = run;
  const subjects = subjectFacts(part.manifest.subjects);
  return [
    { kind: 'heading', level: 2, text: 'Digests' },
    {
      kind: 'paragraph',
      text:
        audit === null
          ? 'This report was made from the folder of a run, and vouches for nothing: archive it, and audit the archive.'
          : auditText(audit),
    },
    {
      kind: 'facts',
      facts: [
        ...(audit === null ? [] : [['Archive', { code: audit.archive.sha256 }] as [string, Cell]]),
        ['Protocol', { code: part.protocol.digest }],
        ['Manifest', { code: part.manifestDigest }],
        ['Last record', { code: part.headDigest }],
        ...(noise === null
          ? []
          : [['A/A run, last record', { code: noise.part.headDigest }] as [string, Cell]]),
        ['Program', { code: part.manifest.program.sha256 }],
        ...subjects,
      ],
    },
  ];
}

/** A file once, where every arm that has one of its name has the same. */
function subjectFacts(subjects: JudgedPart['part']['manifest']['subjects']): [string, Cell][] {
  const all = Object.entries(subjects).flatMap(([arm, list]) => list.map((subject) => ({ arm, ...subject })));
  const facts = all.map(({ arm, name, sha256 }): [string, Cell] => {
    const shared = all.every((other) => other.name !== name || other.sha256 === sha256);
    return [shared ? name : `${arm}: ${name}`, { code: sha256 }];
  });
  return [...new Map(facts)];
}

function auditText({ holds, checks, broken }: Audit): string {
  if (!holds) return `The audit found the archive BROKEN: ${broken?.problem ?? 'unknown'}.`;
  const unchecked = (what: string): number =>
    checks.filter(({ check, verdict }) => verdict === 'unchecked' && check === what).length;
  const signatures = unchecked('signature');
  const open = [
    signatures === 0 ? '' : ` ${signatures} signature checks were left out, because no key was given.`,
    unchecked('reference') === 0
      ? ''
      : ' The reference was not compared with the archive that it was taken from, which was not given.',
  ].join('');
  return `The archive was audited when this report was made: its digests hold and every verdict was recomputed from the raw records.${open} That proves the consistency of records and verdicts; times, bytes and peaks rest on whoever signed.`;
}
