import { deepStrictEqual, ok } from 'node:assert/strict';

/**
 * The part of vitest that the backend contract uses, for machines with a GPU but without npm: scripts/test-cuda.mjs puts it
 * in the place of vitest. Suites run in the order of their declaration, one test at a time.
 */
interface Suite {
  readonly name: string;
  readonly parent: Suite | null;
  readonly before: (() => unknown)[];
  readonly after: (() => unknown)[];
  readonly parts: (Suite | Test)[];
}
interface Test {
  readonly name: string;
  readonly run: () => unknown;
}

const newSuite = (name: string, parent: Suite | null): Suite => ({
  name,
  parent,
  before: [],
  after: [],
  parts: [],
});
let root = newSuite('', null);
let current = root;

export function describe(name: string, body: () => void): void {
  const suite = newSuite(name, current);
  current.parts.push(suite);
  current = suite;
  body();
  current = suite.parent!;
}

export function it(name: string, run: () => unknown): void {
  current.parts.push({ name, run });
}
it.each =
  <Row>(rows: readonly Row[]) =>
  (name: string, run: (...row: unknown[]) => unknown): void => {
    for (const row of rows) {
      const values: readonly unknown[] = Array.isArray(row) ? row : [row];
      it(`${name} [${values.map(String).join(', ')}]`, () => run(...values));
    }
  };
export const test = it;

export function beforeAll(hook: () => unknown): void {
  current.before.push(hook);
}
export function afterAll(hook: () => unknown): void {
  current.after.push(hook);
}

export interface TestCounts {
  passed: number;
  readonly failures: { readonly name: string; readonly message: string }[];
}

/** Runs what was declared so far, and forgets it. */
export async function runDeclared(counts: TestCounts, log: (line: string) => void): Promise<void> {
  const suite = root;
  root = newSuite('', null);
  current = root;
  await runSuite(suite, '', counts, log);
}

async function runSuite(
  suite: Suite,
  path: string,
  counts: TestCounts,
  log: (line: string) => void,
): Promise<void> {
  try {
    for (const hook of suite.before) await hook();
    for (const part of suite.parts) {
      const name = path === '' ? part.name : `${path} > ${part.name}`;
      if ('parts' in part) await runSuite(part, name, counts, log);
      else await runTest(part, name, counts, log);
    }
  } catch (error) {
    counts.failures.push({ name: `${path} (hook)`, message: messageOf(error) });
    log(`FAIL ${path} (hook): ${messageOf(error)}`);
  } finally {
    for (const hook of suite.after) await hook();
  }
}

async function runTest(
  one: Test,
  name: string,
  counts: TestCounts,
  log: (line: string) => void,
): Promise<void> {
  const began = process.hrtime.bigint();
  try {
    await one.run();
    counts.passed += 1;
    log(`ok   ${name} (${Number((process.hrtime.bigint() - began) / 1_000_000n)} ms)`);
  } catch (error) {
    counts.failures.push({ name, message: messageOf(error) });
    log(`FAIL ${name}: ${messageOf(error)}`);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

const containing = Symbol('containing');

function matchObject(actual: unknown, wanted: Record<string, unknown>): void {
  ok(typeof actual === 'object' && actual !== null, `want an object, got ${String(actual)}`);
  for (const [key, value] of Object.entries(wanted)) {
    deepStrictEqual((actual as Record<string, unknown>)[key], value, `property ${key}`);
  }
}

function matchError(error: unknown, wanted: unknown): void {
  if (wanted instanceof RegExp || typeof wanted === 'string') {
    const text = error instanceof Error ? error.message : String(error);
    ok(wanted instanceof RegExp ? wanted.test(text) : text.includes(wanted), `"${text}" against ${wanted}`);
  } else if (typeof wanted === 'function') {
    ok(error instanceof (wanted as new () => Error), `want ${wanted.name}, got ${messageOf(error)}`);
  } else if (typeof wanted === 'object' && wanted !== null && containing in wanted) {
    matchObject(error, (wanted as { [containing]: Record<string, unknown> })[containing]);
  }
}

export function expect(actual: unknown, note = '') {
  const check = (holds: boolean, wanted: string): void =>
    ok(holds, `${note} want ${wanted}, got ${String(actual)}`);
  return {
    toBe: (value: unknown) => check(Object.is(actual, value), String(value)),
    toEqual: (value: unknown) => deepStrictEqual(actual, value, note),
    toBeGreaterThan: (value: number | bigint) => check((actual as number) > value, `more than ${value}`),
    toBeGreaterThanOrEqual: (value: number | bigint) =>
      check((actual as number) >= value, `at least ${value}`),
    toBeLessThanOrEqual: (value: number | bigint) => check((actual as number) <= value, `at most ${value}`),
    toMatchObject: (value: Record<string, unknown>) => matchObject(actual, value),
    toThrow(wanted?: unknown) {
      let thrown: { readonly error: unknown } | null = null;
      try {
        (actual as () => unknown)();
      } catch (error) {
        thrown = { error };
      }
      ok(thrown !== null, 'want a throw');
      matchError(thrown.error, wanted);
    },
    rejects: {
      toMatchObject: async (value: Record<string, unknown>) =>
        matchObject(await rejection(actual as Promise<unknown>), value),
      toThrow: async (wanted?: unknown) => matchError(await rejection(actual as Promise<unknown>), wanted),
    },
  };
}
expect.fail = (message: string): never => {
  throw new Error(message);
};
expect.objectContaining = (value: Record<string, unknown>) => ({ [containing]: value });

async function rejection(promise: Promise<unknown>): Promise<unknown> {
  const settled = await promise.then(
    () => null,
    (error: unknown) => ({ error }),
  );
  ok(settled !== null, 'want a rejection');
  return settled.error;
}
