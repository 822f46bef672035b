import type { TestCounts } from './mini-runner.js';

/** Runs one named check and counts how it went. */
export async function check(
  name: string,
  counts: TestCounts,
  log: (line: string) => void,
  run: () => Promise<void>,
): Promise<void> {
  const began = process.hrtime.bigint();
  try {
    await run();
    counts.passed += 1;
    log(`ok   ${name} (${Number((process.hrtime.bigint() - began) / 1_000_000n)} ms)`);
  } catch (error) {
    const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    counts.failures.push({ name, message });
    log(`FAIL ${name}: ${message}`);
  }
}
