import { lowBitNames } from '../../src/checkpoint/low-bit.js';
import { type LowBitModel, lowBitPlan, openLowBit } from '../../src/checkpoint/low-bit-model.js';
import { CertificateCounter } from '../../src/generate/certificate-counter.js';
import { scoreTokens } from '../../src/generate/score.js';
import { openModel } from '../../src/generate/session.js';
import type { TestCounts } from './mini-runner.js';

/** Certifies on the GPU beside the dense model, in every format: no active neuron may be certified inactive. */
export async function checkCertificates(
  model: string,
  prompts: readonly (readonly number[])[],
  counts: TestCounts,
  log: (line: string) => void,
): Promise<void> {
  const name = `certificates ${model}`;
  const lowBits: LowBitModel[] = [];
  const session = await openModel({
    model,
    backend: 'cuda',
    policy: 'resident',
    contextPositions: 64,
    clampContext: true,
    logitsRows: 8,
  });
  try {
    const { prepared } = session.plan;
    for (const format of lowBitNames) {
      lowBits.push(await openLowBit(prepared, await lowBitPlan(prepared, format)));
    }
    const counter = new CertificateCounter(session.backend, lowBits, (id) => session.source.vector(id));
    session.observer = counter.observer;
    for (const ids of prompts.filter(({ length }) => length > 1)) {
      await scoreTokens(session, ids.slice(0, 48), { prefixId: null });
    }
    const found = counter.counts();
    const wrong = found.reduce((sum, { wronglyCertified }) => sum + wronglyCertified, 0);
    const missing = found.some(({ uncertain, active, judged }) => uncertain < active || judged === 0);
    if (wrong > 0 || missing || found.length < lowBitNames.length) {
      throw new Error(`${wrong} active neurons were certified inactive, ${found.length} copies judged`);
    }
    for (const format of lowBitNames) {
      const own = found.filter(({ copies }) => copies === format);
      const sum = (key: 'judged' | 'active' | 'uncertain') => own.reduce((all, one) => all + one[key], 0);
      const percent = (part: number) => ((100 * part) / sum('judged')).toFixed(2);
      log(
        `ok   ${name} ${format}: ${percent(sum('active'))} % active, ${percent(sum('uncertain'))} % uncertain, 0 wrongly certified`,
      );
    }
    counts.passed += 1;
  } catch (error) {
    const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    counts.failures.push({ name, message });
    log(`FAIL ${name}: ${message}`);
  } finally {
    for (const lowBit of lowBits) await lowBit.close();
    await session.close();
  }
}
