import { comparePolicies, type PricedPolicy } from '../acquire/compare.js';
import type { Placement, WeightPath } from '../acquire/placement.js';
import { formatByteSize } from '../base/byte-size.js';
import { measureLink } from '../generate/link-rates.js';
import { closePlan, planSession, type SessionPlan } from '../generate/session.js';
import { runtimeAllowanceBytes } from '../memory/runtime-allowance.js';
import { plainTable } from './plain-table.js';
import { policyTable } from './policy-table.js';
import { Progress } from './progress.js';
import { sessionCommand } from './session-command.js';
import { sessionHooks, sessionOptionsOf } from './session-flags.js';
import { interruption } from './signals.js';
import { openTerminal } from './terminal.js';

/** `waybill plan`: what would lie where, and what each token would move, before any weight is loaded. */
export function planCommand() {
  return sessionCommand('plan')
    .option('--compare', 'price every policy under the same budget')
    .action(async (given) => {
      const terminal = openTerminal(given);
      const progress = new Progress(terminal);
      const { signal, dispose } = interruption();
      const hooks = {
        ...sessionHooks(terminal, progress, signal, null),
        measureLink,
      };
      const plan = await planSession(sessionOptionsOf(given), hooks);
      try {
        progress.stop();
        const compared = given.compare === true ? comparePolicies(plan.request) : null;
        terminal.print(compared === null ? planText(plan) : compareText(plan, compared));
        if (terminal.json)
          terminal.printJson({
            placement: plan.placement,
            choice: plan.choice,
            kv: plan.kvShape,
            backend: plan.backend.info,
            backendChoice: plan.backendChoice,
            link: plan.request.link ?? null,
            ...(compared === null ? {} : { policies: compared }),
          });
      } finally {
        await closePlan(plan);
        dispose();
      }
    });
}

const pathNames: Record<WeightPath, string> = {
  resident: 'held, every row read',
  'resident-sparse': 'held, rows of zero activations skipped',
  q8: 'held, every row read, in 8 bits: other numbers',
  q4: 'held, every row read, in 4 bits: other numbers',
  streamed: 'streamed whole in every pass',
  packets: 'rows of active neurons alone',
  extents: 'blocks of 128 rows with an active one',
  staged: 'rows of active neurons, in a packet with their indices',
  retained: 'rows of active neurons that are not held from before',
  forecast: 'guessed rows early, other active ones on demand',
  certified: 'rows that no certificate proves inactive',
};

const regimeNames: Record<Placement['regime'], string> = {
  resident: 'everything is held, nothing moves',
  C: 'attention and first projections are held, second projections move',
  B: 'first projections move too, in part or whole',
  A: 'attention moves too',
};

function compareText(plan: SessionPlan, compared: readonly PricedPolicy[]): string {
  const { options, placement } = plan;
  const { budgetBytes, moved, predictedMsPerToken } = placement;
  const lines = [
    `model      ${options.model}`,
    `budget     ${budgetBytes === null ? 'none' : bytesText(budgetBytes)}`,
    `activity   ${(moved.activeShare * 100).toFixed(1)} % of neurons (${moved.activeShareSource})`,
  ];
  if (predictedMsPerToken !== null)
    lines.push(`ms         for what moves, ${ratesText(plan)}; arithmetic comes on top`);
  return `${lines.join('\n')}\n\n${policyTable(compared)}`;
}

function planText(plan: SessionPlan): string {
  const { placement, options, backend, choice, backendChoice } = plan;
  const { budgetBytes, totalBytes, minimumBytes, moved } = placement;
  const lines = [
    `model      ${options.model}`,
    `policy     ${placement.policy}${placement.exact ? '' : ' (not exact)'}${choice === null ? '' : `, picked: ${choice.reason}`}`,
    `regime     ${placement.regime}${placement.gated ? ', gated' : ''}: ${regimeNames[placement.regime]}`,
    `backend    ${backend.info.name}${backendChoice === null ? '' : `, picked: ${backendChoice.reason}`}`,
    `kernels    ${backend.info.kernels} (${backend.info.reason}), ${backend.info.threads} threads`,
    `numerics   ${backend.info.numerics}`,
    `budget     ${budgetBytes === null ? 'none' : bytesText(budgetBytes)}`,
    `held       ${bytesText(totalBytes)}; this policy needs at least ${bytesText(minimumBytes)}; the runtime itself takes up to ${formatByteSize(runtimeAllowanceBytes)} more`,
    `a token    ${bytesText(moved.expectedBytes)}: dense ${formatByteSize(moved.denseDecodeBytes)}, rows ${formatByteSize(moved.expectedPacketBytes)} if ${(moved.activeShare * 100).toFixed(1)} % of neurons are active (${moved.activeShareSource}), embedding ${formatByteSize(moved.embeddingBytes)}`,
  ];
  for (const { policy, reason } of choice?.leftOut ?? []) lines.push(`left out   ${policy}: ${reason}`);
  if (placement.predictedMsPerToken !== null)
    lines.push(
      `predicted  about ${placement.predictedMsPerToken.toFixed(2)} ms a token for what moves, ${ratesText(plan)}; arithmetic comes on top`,
    );
  const device = deviceText(plan);
  if (device !== null) lines.push(device);
  return `${lines.join('\n')}\n\n${componentTable(placement)}\n\n${matrixTable(placement)}\n${denseNotes(placement)}`;
}

/** Where the rates of a prediction come from. */
function ratesText({ request, prepared }: SessionPlan): string {
  const { link } = request;
  if (link?.deviceBytesPerSecond === undefined)
    return `at the rates just read from "${prepared.weightsFile.path}"`;
  return `at the rates just measured on the link: copies ${rateText(link.denseBytesPerSecond)}, rows that the GPU reads itself ${rateText(link.rowBytesPerSecond)}`;
}

/** What reading the held weights takes a device at least. */
function deviceText({ request, placement }: SessionPlan): string | null {
  const rate = request.link?.deviceBytesPerSecond;
  if (rate === undefined) return null;
  const bytes = heldBytesRead(placement);
  return `device     copies within itself at ${rateText(rate)}: at least ${((bytes / rate) * 1000).toFixed(2)} ms a token for ${formatByteSize(bytes)} of held weights`;
}

/** Bytes of held matrices that a new token reads, where zeros are skipped at the expected share. */
function heldBytesRead({ matrices, moved }: Placement): number {
  return matrices.reduce((sum, { paths, bytes }) => {
    if (paths.decode === 'resident') return sum + bytes;
    return paths.decode === 'resident-sparse' ? sum + Math.round(bytes * moved.activeShare) : sum;
  }, 0);
}

function rateText(bytesPerSecond: number): string {
  return `${(bytesPerSecond / 1e9).toFixed(1)} GB/s`;
}

function bytesText(bytes: number): string {
  return `${formatByteSize(bytes)} (${bytes} B)`;
}

function componentTable({ components }: Placement): string {
  const table = plainTable(['held', 'cause', 'bytes']);
  for (const { label, cause, bytes } of components)
    table.push([label, cause, { hAlign: 'right', content: String(bytes) }]);
  return table.toString();
}

/** Matrices by role and path, since layers mostly agree. */
function matrixTable({ matrices }: Placement): string {
  const groups = new Map<
    string,
    { role: string; prefill: WeightPath; decode: WeightPath; count: number; bytes: number }
  >();
  for (const { role, paths, bytes } of matrices) {
    const key = `${role} ${paths.prefill} ${paths.decode}`;
    const group = groups.get(key) ?? { role, ...paths, count: 0, bytes: 0 };
    group.count++;
    group.bytes += bytes;
    groups.set(key, group);
  }
  const table = plainTable(['matrices', 'of role', 'bytes', 'prompt', 'new tokens']);
  for (const { role, prefill, decode, count, bytes } of groups.values()) {
    table.push([
      count,
      role,
      { hAlign: 'right', content: String(bytes) },
      pathNames[prefill],
      pathNames[decode],
    ]);
  }
  return table.toString();
}

function denseNotes({ matrices, notes }: Placement): string {
  const ofPolicy = notes.map((note) => `note: ${note}\n`).join('');
  const ofMatrices = matrices
    .filter(({ denseReason }) => denseReason !== null)
    .map(
      ({ id, denseReason }) =>
        `note: ${id} is acquired densely: ${denseReason === 'dense-activation' ? 'its activations are dense' : 'it holds non-finite weights'}\n`,
    )
    .join('');
  return ofPolicy + ofMatrices;
}
