import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SetupError, TamperedError } from '../base/errors.js';
import { checkFrozen } from './freeze.js';
import { type ProtocolFile, parseProtocol, protocolData } from './protocol-file.js';

/** One value that differs between two protocols; what is absent is undefined. */
export interface ProtocolChange {
  readonly path: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** What a protocol changed of the one before it, in the order of their keys. */
export function protocolChanges(before: ProtocolFile, after: ProtocolFile): ProtocolChange[] {
  const [old, now] = [leaves(protocolData(before)), leaves(protocolData(after))];
  const paths = [...new Set([...old.keys(), ...now.keys()])].filter(
    (path) => !path.startsWith('supersedes.'),
  );
  return paths.flatMap((path) => {
    const [a, b] = [old.get(path), now.get(path)];
    return a === b ? [] : [{ path, before: a, after: b }];
  });
}

function leaves(value: unknown, path: readonly (string | number)[] = [], found = new Map<string, unknown>()) {
  if (typeof value === 'object' && value !== null && Object.keys(value).length > 0) {
    for (const [key, member] of Object.entries(value)) leaves(member, [...path, key], found);
  } else {
    found.set(path.join('.'), value);
  }
  return found;
}

/** A protocol and the bytes that it was read from. */
export interface ChainLink {
  readonly file: ProtocolFile;
  readonly bytes: Uint8Array;
}

/**
 * The protocols that a frozen protocol supersedes, the nearest first, found by digest among the `.yaml` files of a
 * folder. Each is checked as frozen.
 * @throws SetupError `superseded-protocol-missing`; TamperedError `protocol-changed`
 */
export async function supersededProtocols(file: ProtocolFile, folder: string): Promise<ChainLink[]> {
  const chain: ChainLink[] = [];
  let wanted = file.protocol.supersedes?.digest;
  if (wanted === undefined) return chain;
  const byDigest = await frozenProtocols(folder);
  while (wanted !== undefined) {
    const earlier = byDigest.get(wanted);
    if (earlier === undefined) {
      throw new SetupError(
        'superseded-protocol-missing',
        `Cannot follow what "${file.name}" supersedes: no protocol in "${folder}" was frozen as ${wanted}`,
        { digest: wanted, folder },
      );
    }
    checkFrozen(earlier.file);
    chain.push(earlier);
    wanted = earlier.file.protocol.supersedes?.digest;
  }
  return chain;
}

/**
 * Checks that `earlier` is what a frozen protocol supersedes, the nearest first, whole to the first of them.
 * @throws TamperedError `broken-protocol-chain`, or as `checkFrozen`
 */
export function checkProtocolChain(file: ProtocolFile, earlier: readonly ProtocolFile[]): void {
  const refuse = (problem: string): TamperedError =>
    new TamperedError('broken-protocol-chain', `Cannot follow what "${file.name}" supersedes: ${problem}`);
  let wanted = file.protocol.supersedes?.digest;
  for (const [index, link] of earlier.entries()) {
    checkFrozen(link);
    if (wanted === undefined)
      throw refuse(`"${link.name}" is there, and protocol ${index} supersedes nothing`);
    if (link.digest !== wanted) throw refuse(`"${link.name}" was frozen as ${link.digest}, want ${wanted}`);
    const later = index === 0 ? file : earlier[index - 1]!;
    if (Date.parse(link.protocol.frozen!.at) > Date.parse(later.protocol.frozen?.at ?? ''))
      throw refuse(`"${link.name}" was frozen at ${link.protocol.frozen!.at}, after what supersedes it`);
    wanted = link.protocol.supersedes?.digest;
  }
  if (wanted !== undefined) throw refuse(`the protocol that was frozen as ${wanted} is missing`);
}

/** Protocols of a folder by the digest that they were frozen with; files that are none are passed over. */
async function frozenProtocols(folder: string): Promise<Map<string, ChainLink>> {
  const found = new Map<string, ChainLink>();
  for (const name of (await readdir(folder).catch(() => []))
    .filter((entry) => /\.ya?ml$/.test(entry))
    .sort()) {
    try {
      const bytes = await readFile(join(folder, name));
      const file = parseProtocol(bytes, name);
      if (file.protocol.frozen !== undefined) found.set(file.protocol.frozen.digest, { file, bytes });
    } catch {
      // another YAML file, or a draft that is not whole yet
    }
  }
  return found;
}
