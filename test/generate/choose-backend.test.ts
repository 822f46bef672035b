import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Backend } from '../../src/backend/backend.js';
import { openNull } from '../../src/backend/null/open-null.js';
import { BudgetError, ExecutionError, SetupError, UsageError } from '../../src/base/errors.js';
import { planOnBackend } from '../../src/generate/choose-backend.js';
import { impliedBackend } from '../../src/generate/implied-backend.js';
import { closePlan, planSession } from '../../src/generate/session.js';
import { type SessionOptions, sessionOptions } from '../../src/generate/session-options.js';
import { models } from './models.js';

/** A machine with a GPU, or without: what opening one comes to. */
const machine = vi.hoisted(() => ({
  driver: null as Error | null,
  gpu: null as Error | null,
  contextBytes: 0,
  freeBytes: Number.POSITIVE_INFINITY,
  bounceBytes: 0,
  opened: [] as string[],
  closed: [] as string[],
}));

vi.mock(import('../../src/backend/open.js'), async (original) => {
  const actual = await original();
  return {
    ...actual,
    requireGpu: async () => {
      if (machine.driver !== null) throw machine.driver;
    },
    openBackend: async ({ name }) => {
      machine.opened.push(name);
      if (name === 'cuda' && machine.gpu !== null) throw machine.gpu;
      return counting(name);
    },
  };
});

/** Plans like a backend of that name, and computes nothing. */
function counting(name: string): Backend {
  const backend: Backend = openNull({ activeRows: () => [] });
  const close = backend.close.bind(backend);
  return Object.assign(backend, {
    info: { ...backend.info, name, reason: `a fake ${name}` },
    close: async () => {
      machine.closed.push(name);
      await close();
    },
    ...(name === 'cuda'
      ? {
          overheads: [{ label: 'context', cause: 'runtime' as const, bytes: machine.contextBytes }],
          freeBytes: machine.freeBytes,
          hostTier: {
            directRows: 4,
            bounceBytes: machine.bounceBytes,
            mirror: () => Promise.reject(new Error('plans alone')),
          },
        }
      : {}),
  });
}

const noDriver = new SetupError('no-cuda-driver', 'Cannot open CUDA: there is no driver');

beforeEach(() => {
  Object.assign(machine, {
    driver: null,
    gpu: null,
    contextBytes: 300 * 2 ** 20,
    freeBytes: 2 ** 40,
    bounceBytes: 0,
    opened: [],
    closed: [],
  });
});
afterEach(() => vi.restoreAllMocks());

const model = models['opt-books-draft']!;

async function planned(given: Partial<SessionOptions> = {}) {
  const notes: string[] = [];
  const plan = await planSession(
    { model, policy: 'packets', contextPositions: 64, prefillChunk: 8, ...given },
    { onNote: (note) => notes.push(note) },
  );
  await closePlan(plan);
  const { backendChoice, options, backend } = plan;
  return { notes, choice: backendChoice, named: options.backend, used: backend.info.name };
}

describe('a session that names no backend', () => {
  test('computes on a GPU where one works', async () => {
    expect(await planned()).toEqual({
      notes: [],
      choice: { backend: 'cuda', reason: 'a GPU is there: a fake cuda' },
      named: 'cuda',
      used: 'cuda',
    });
    expect(machine.opened).toEqual(['cuda']);
  });

  test.each(['no-cuda-driver', 'no-gpu'])('says nothing of a machine without one: %s', async (code) => {
    machine.driver = new SetupError(code, 'Cannot open CUDA: there is none');
    expect(await planned()).toEqual({
      notes: [],
      choice: { backend: 'cpu', reason: 'Cannot open CUDA: there is none' },
      named: 'cpu',
      used: 'cpu',
    });
    expect(machine.opened).toEqual(['cpu']);
  });

  test.each([
    new SetupError('no-cuda-compiler', 'Cannot compile kernels: install NVRTC'),
    new ExecutionError('cuda-failed', 'Cannot load the kernels: cuModuleLoadData failed'),
  ])('says in a line why a GPU that is there is not used: $code', async (error) => {
    machine.gpu = error;
    const { notes, choice, used } = await planned();
    expect(used).toBe('cpu');
    expect(notes).toEqual([`computing on the CPU: ${error.message}`]);
    expect(choice).toEqual({ backend: 'cpu', reason: error.message });
  });

  test('does not open a GPU for a budget that no context fits', async () => {
    const { notes, used } = await planned({ budgetBytes: 18 * 2 ** 20 });
    expect(used).toBe('cpu');
    expect(machine.opened).toEqual(['cpu']);
    expect(notes).toEqual([
      'computing on the CPU: Cannot use a GPU in a budget of 18 MiB: its context alone takes more',
    ]);
  });

  test('leaves a GPU whose context does not fit the budget', async () => {
    const { notes, used } = await planned({ budgetBytes: 100 * 2 ** 20 });
    expect(used).toBe('cpu');
    expect([machine.opened, machine.closed]).toEqual([
      ['cuda', 'cpu'],
      ['cuda', 'cpu'],
    ]);
    expect(notes).toHaveLength(1);
    expect(notes[0]).toMatch(
      /^computing on the CPU: Cannot use a GPU in a budget of 100 MiB: at least 30\d\.\d+ MiB are needed there, its context among them$/,
    );
  });

  test('leaves a GPU whose memory others use, and says nothing of what was planned for it', async () => {
    machine.freeBytes = 2 ** 20;
    const { notes, choice } = await planned({ policy: 'resident' });
    expect(notes).toHaveLength(1);
    expect(choice!.reason).toMatch(
      /^Cannot hold [\d.]+ MiB on the GPU: 1 MiB of its memory are free; give a --budget$/,
    );
  });

  test('leaves a GPU beside which what moves cannot be pinned', async () => {
    machine.contextBytes = 0;
    machine.bounceBytes = 2 ** 20;
    vi.spyOn(process, 'availableMemory').mockReturnValue(2 ** 20);
    const bounded = { policy: 'stream', budgetBytes: 64 * 2 ** 20 } as const;
    expect((await planned(bounded)).choice).toMatchObject({
      backend: 'cpu',
      reason: expect.stringMatching(
        /^Cannot keep what is not on the GPU in host memory: [\d.]+ MiB would be pinned, 1 MiB are available$/,
      ),
    });
    vi.mocked(process.availableMemory).mockReturnValue(2 ** 33);
    expect((await planned(bounded)).used).toBe('cuda');
  });

  test('does not take a mistake of the caller for a reason', async () => {
    await expect(planned({ contextPositions: 10_000_000 })).rejects.toMatchObject({
      code: 'context-too-long',
    });
    expect([machine.opened, machine.closed]).toEqual([['cuda'], ['cuda']]);
  });

  test('fails as the CPU does where neither holds the plan', async () => {
    await expect(planned({ budgetBytes: 2 ** 10 })).rejects.toBeInstanceOf(BudgetError);
    expect(machine.opened).toEqual(['cpu']);
  });
});

describe('a backend that is named', () => {
  test('is the one, or the error says why not', async () => {
    expect(await planned({ backend: 'cpu' })).toMatchObject({ choice: null, named: 'cpu', notes: [] });
    machine.gpu = noDriver;
    await expect(planned({ backend: 'cuda' })).rejects.toBe(noDriver);
    expect(machine.opened).toEqual(['cpu', 'cuda']);
  });

  test.each([
    [{ threads: 2 }, 'cpu'],
    [{ kernels: 'wasm' }, 'cpu'],
    [{ kernels: 'auto' }, 'auto'],
    [{ device: 0 }, 'cuda'],
    [{ hostBudgetBytes: 2 ** 30 }, 'cuda'],
    [{ hostBudgetBytes: Infinity }, 'auto'],
    [{ numerics: 'native' }, 'cuda'],
    [{ streamLayout: 'strided' }, 'cuda'],
    [{}, 'auto'],
  ] as const)('is implied by what only one has a use for: %o', (given, backend) => {
    expect(impliedBackend(given)).toBe(backend);
    expect(sessionOptions({ model, ...given }).backend).toBe(backend);
  });

  test('cannot be two', () => {
    const both = { threads: 2, device: 1 };
    expect(() => impliedBackend(both)).toThrow(UsageError);
    expect(() => impliedBackend(both, { threads: '--threads', device: '--device' })).toThrow(
      'Cannot use --threads together with --device: the first is for the cpu backend alone, the second for a GPU, want one of the two',
    );
    expect(() => sessionOptions({ model, ...both })).toThrow('Cannot use "threads" together with "device"');
  });

  test('may be auto in so many words, with threads for a CPU that it may come to', async () => {
    expect(await planned({ backend: 'auto', threads: 3 })).toMatchObject({ used: 'cuda' });
    machine.gpu = noDriver;
    const native = planOnBackend(
      sessionOptions({ model, backend: 'auto', numerics: 'native' }),
      undefined,
      () => Promise.reject(new Error('is not planned on')),
    );
    await expect(native).rejects.toBe(noDriver);
  });
});
