import { join } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import type { PolicyName } from '../acquire/policy.js';
import { formatByteSize } from '../base/byte-size.js';
import { ExecutionError } from '../base/errors.js';
import { generateOptions } from '../generate/options.js';
import type { GenerationOutcome } from '../generate/outcome.js';
import { closePlan, openSession, planSession, type Session } from '../generate/session.js';
import { packageRoot } from '../receipt/program.js';
import { flags } from './flags.js';
import { plainTable } from './plain-table.js';
import { Progress } from './progress.js';
import { decodeTokensPerSecond, movedWeightBytes } from './run-report.js';
import { sessionHooks } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal, type Terminal } from './terminal.js';
import { writeRunReceipt } from './write-run-receipt.js';

const prompt = 'The old house stood at the end of the road, and every evening';
const newTokens = 48;
/** Share of the model's bytes that the bounded arms may hold in all, KV and workspace included. */
const budgetShare = 0.9;

/** An arm of the demo: a policy, with the budget or without. */
interface Arm {
  readonly policy: PolicyName;
  readonly bounded: boolean;
}

const arms: readonly Arm[] = [
  { policy: 'stream', bounded: true },
  { policy: 'packets', bounded: true },
  { policy: 'phase', bounded: true },
  { policy: 'resident', bounded: false },
  { policy: 'resident-sparse', bounded: false },
];

interface ArmResult extends Arm {
  readonly outcome: GenerationOutcome;
}

/** `waybill demo`: the main job on the embedded model, in five arms that must agree to the last bit. */
export function demoCommand() {
  return new Command('demo')
    .option(
      '--model <folder>',
      'another checkpoint folder',
      join(packageRoot(), 'models', 'opt-books-target'),
    )
    .option('--receipt <file>', 'where to write the receipt of the phase arm', 'demo.intoto.jsonl')
    .addOption(flags.kernels())
    .addOption(flags.threads())
    .addOption(flags.quiet())
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const { signal, dispose } = interruption();
      const results: ArmResult[] = [];
      const hooks = sessionHooks(terminal, progress, signal, null);
      const base = {
        model: given.model,
        kernels: given.kernels,
        contextPositions: 128,
        prefillChunk: 32,
        ...(given.threads === undefined ? {} : { threads: given.threads }),
      };
      try {
        const modelBytes = await weightBytes(base, hooks);
        const budgetBytes = Math.floor(modelBytes * budgetShare);
        progress.stop();
        terminal.print(
          `model: ${formatByteSize(modelBytes)} of weights; budget: ${formatByteSize(budgetBytes)} for weights, KV and workspace\n`,
        );
        const backend = await commonBackend(base, budgetBytes, hooks);
        for (const arm of arms) {
          const options = {
            ...base,
            ...backend,
            policy: arm.policy,
            ...(arm.bounded ? { budgetBytes } : {}),
          };
          const session = await openSession(await planSession(options, hooks), hooks);
          progress.stop();
          try {
            terminal.print(`\n${arm.policy}${arm.bounded ? '' : ' (budget lifted)'}: ${prompt}`);
            const receipt = arm.policy === 'phase' ? given.receipt : null;
            results.push({ ...arm, outcome: await runArm(session, terminal, signal, receipt) });
          } finally {
            await session.close();
          }
        }
        terminal.print(`\n${resultTable(results)}\n\n`);
        terminal.print(`${agreement(results)}\n`);
        terminal.print(
          `receipt of the phase arm: ${given.receipt} (check it: npx waybill verify ${given.receipt})\n`,
        );
      } finally {
        progress.stop();
        dispose();
      }
    });
}

type Base = Parameters<typeof planSession>[0];
type Hooks = Parameters<typeof planSession>[1];

/** One backend for all arms: a GPU only where it holds the arm of the least budget and the arm of the most bytes. */
async function commonBackend(base: Base, budgetBytes: number, hooks: Hooks): Promise<Pick<Base, 'backend'>> {
  let backend: Base['backend'];
  for (const arm of [{ policy: 'stream', budgetBytes }, { policy: 'resident' }] as const) {
    const plan = await planSession({ ...base, ...arm }, hooks);
    backend = plan.options.backend;
    await closePlan(plan);
    if (backend === 'cpu') break;
  }
  return backend === undefined ? {} : { backend };
}

async function weightBytes(options: Base, hooks: Hooks): Promise<number> {
  const plan = await planSession({ ...options, backend: 'cpu', policy: 'resident' }, hooks);
  try {
    return plan.placement.components
      .filter(({ cause }) => cause === 'dense-weights')
      .reduce((sum, { bytes }) => sum + bytes, 0);
  } finally {
    await closePlan(plan);
  }
}

async function runArm(
  session: Session,
  terminal: Terminal,
  signal: AbortSignal,
  receipt: string | null,
): Promise<GenerationOutcome> {
  const options = generateOptions({ maxNewTokens: newTokens, ignoreEos: true });
  const startedAt = new Date();
  const generation = session.generate([prompt], options, { signal });
  for await (const { text } of generation) terminal.print(text);
  terminal.print('\n');
  const { outcome } = generation;
  if (receipt !== null) {
    await writeRunReceipt(
      session,
      { outcome, options, startedAt, finishedAt: new Date() },
      { receipt },
      null,
    );
  }
  return outcome;
}

function resultTable(results: readonly ArmResult[]): string {
  const streamed = movedWeightBytes(results.find(({ policy }) => policy === 'stream')!.outcome);
  const table = plainTable([
    'policy',
    'tokens/s',
    'first token',
    'dense moved',
    'rows moved',
    'of stream',
    'peak held',
  ]);
  for (const { policy, bounded, outcome } of results) {
    const first = outcome.times.timeToFirstTokenNs;
    const moved = movedWeightBytes(outcome);
    table.push([
      bounded ? policy : `${policy} *`,
      (decodeTokensPerSecond(outcome) ?? 0).toFixed(1),
      first === null ? '-' : `${(Number(first) / 1e6).toFixed(1)} ms`,
      formatByteSize(outcome.bytes.moved['dense-weights']),
      formatByteSize(outcome.bytes.moved['packet-rows'] + outcome.bytes.moved['embedding-rows']),
      streamed === 0 ? '-' : `${((100 * moved) / streamed).toFixed(1)} %`,
      formatByteSize(outcome.bytes.totalHeldPeak),
    ]);
  }
  return `${table.toString()}\n* budget lifted`;
}

/** Counts what agrees with the first arm, token by token and digest by digest. */
function agreement(results: readonly ArmResult[]): string {
  const [reference, ...others] = results.map(({ outcome }) => outcome.requests[0]!);
  const { tokenIds, logitsDigests } = reference!;
  const tokens = tokenIds.filter((id, index) => others.every((other) => other.tokenIds[index] === id)).length;
  const digests = others.flatMap((other) =>
    other.logitsDigests.map((digest, index) => digest === logitsDigests[index]),
  );
  const equal = digests.filter((same) => same).length;
  const wanted = others.length * logitsDigests.length;
  const line = `bit-identical: ${tokens}/${tokenIds.length} tokens, ${equal}/${wanted} logits digests`;
  if (tokens === tokenIds.length && equal === wanted) return line;
  throw new ExecutionError('arms-differ', `Cannot confirm that all policies agree: ${line}`, {
    tokens,
    equal,
    wanted,
  });
}
