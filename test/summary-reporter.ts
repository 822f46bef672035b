import type { Reporter, TestModule } from 'vitest/node';

/** Ends the output with one plain line, for whoever reads logs by machine. */
export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const count = { passed: 0, failed: 0, skipped: 0 };
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed' || state === 'failed' || state === 'skipped') count[state]++;
      }
      // A file that could not be collected has no tests to count, and is a failure all the same.
      if (
        module.state() === 'failed' &&
        [...module.children.allTests()].every((test) => test.result().state !== 'failed')
      ) {
        count.failed++;
      }
    }
    process.stdout.write(`\n${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped\n`);
  }
}
