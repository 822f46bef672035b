import type { CommandUnknownOpts } from '@commander-js/extra-typings';

/** A command as `--help` lists it; its module is loaded only when it is asked for. */
export interface CommandEntry {
  readonly name: string;
  readonly description: string;
  load(): Promise<CommandUnknownOpts>;
}

export const commandEntries: readonly CommandEntry[] = [
  {
    name: 'generate',
    description: 'continue prompts, inside a byte budget, exactly',
    load: async () => (await import('./generate-command.js')).generateCommand(),
  },
  {
    name: 'plan',
    description: 'show what stays resident, what moves, and what fits, before anything is loaded',
    load: async () => (await import('./plan-command.js')).planCommand(),
  },
  {
    name: 'inspect',
    description: 'show architecture, tensors, activation, and what packets can serve and why not',
    load: async () => (await import('./inspect-command.js')).inspectCommand(),
  },
  {
    name: 'prepare',
    description: 'pack a checkpoint into the layout that runs read; a first run does it by itself',
    load: async () => (await import('./prepare-command.js')).prepareCommand(),
  },
  {
    name: 'score',
    description: 'log-probabilities and perplexity of a text, teacher-forced',
    load: async () => (await import('./score-command.js')).scoreCommand(),
  },
  {
    name: 'profile',
    description: 'record which rows a text needs, for hot sets and better predictions',
    load: async () => (await import('./profile-command.js')).profileCommand(),
  },
  {
    name: 'diff',
    description: 'compare two runs recorded with --trace-ops: the first differing layer, op and index',
    load: async () => (await import('./diff-command.js')).diffCommand(),
  },
  {
    name: 'verify',
    description: 'check a receipt: form, seal, sums, signatures, digests of what is at hand',
    load: async () => (await import('./verify-command.js')).verifyCommand(),
  },
  {
    name: 'keygen',
    description: 'make an Ed25519 key pair for signing receipts',
    load: async () => (await import('./keygen-command.js')).keygenCommand(),
  },
  {
    name: 'lab',
    description: 'turn a claim into evidence: protocols, runs, verdicts',
    load: async () => (await import('./lab-command.js')).labCommand(),
  },
  {
    name: 'cache',
    description: 'list or remove downloaded and prepared models',
    load: async () => (await import('./cache-command.js')).cacheCommand(),
  },
  {
    name: 'doctor',
    description: 'show which kernels are in use and why, limits, and optional parts',
    load: async () => (await import('./doctor-command.js')).doctorCommand(),
  },
  {
    name: 'demo',
    description:
      'run the embedded model under a budget smaller than itself, in five ways, and compare every bit',
    load: async () => (await import('./demo-command.js')).demoCommand(),
  },
];
