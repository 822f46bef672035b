import { canonicalJson } from '../base/canonical-json.js';
import { allArms, type Protocol } from './protocol-schema.js';

/** Digest of the model that an arm runs. */
export function modelDigest(protocol: Protocol, name: string): string | undefined {
  const arm = allArms(protocol).find((candidate) => candidate.name === name);
  return (arm?.kind === 'session' ? arm.model?.sourceDigest : undefined) ?? protocol.model?.sourceDigest;
}

/** Why trials of an arm of another protocol's run can be no reference of this one's, or null. */
export function referenceProblem(ours: Protocol, theirs: Protocol, name: string): string | null {
  if (!allArms(theirs).some((arm) => arm.name === name)) return `it has no arm "${name}"`;
  const digest = modelDigest(theirs, name);
  if (digest !== ours.model?.sourceDigest)
    return `its arm "${name}" ran the model ${digest}, want ${ours.model?.sourceDigest}`;
  const [here, there] = [ours.workload.newTokens, theirs.workload.newTokens];
  return here === there ? null : `its trials have ${there} new tokens a request, want ${here}`;
}

/** Index in another protocol of the item with the same prompts; both state them, or both name one file by one salted digest. */
export function itemThere(ours: Protocol, theirs: Protocol, item: number): number | null {
  const [a, b] = [ours.workload.items, theirs.workload.items];
  if (Array.isArray(a) && Array.isArray(b)) {
    const wanted = canonicalJson(a[item] ?? null);
    const index = b.findIndex((other) => canonicalJson(other) === wanted);
    return index < 0 ? null : index;
  }
  if (Array.isArray(a) || Array.isArray(b)) return null;
  return a.saltedSha256 === b.saltedSha256 ? item : null;
}
