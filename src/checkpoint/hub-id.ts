import { UsageError } from '../base/errors.js';

/** A model on the hub, `name` or `org/name`, at a branch, tag or commit. */
export interface HubId {
  readonly name: string;
  readonly revision: string;
}

const namePart = /^[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?$/;

/**
 * Reads `name`, `org/name` or either with `@revision`; null where the text cannot be a hub id (a path, say). The
 * rules are the hub's: letters, digits, `-`, `_` and `.`, no `--` and no `..`, at most 96 characters. Throws
 * `UsageError`: `revision-invalid`, `revision-twice` where `revision` contradicts the id.
 */
export function parseHubId(text: string, revision?: string): HubId | null {
  const at = text.indexOf('@');
  const name = at < 0 ? text : text.slice(0, at);
  const parts = name.split('/');
  if (parts.length > 2 || name.length > 96 || /--|\.\./.test(name) || name.endsWith('.git')) return null;
  if (!parts.every((part) => namePart.test(part))) return null;
  const own = at < 0 ? undefined : text.slice(at + 1);
  if (own !== undefined && revision !== undefined && own !== revision) {
    throw new UsageError(
      'revision-twice',
      `Opening the model "${text}" failed: the id names revision "${own}" and the option "${revision}"`,
      { model: text, revision },
    );
  }
  return { name, revision: checkedRevision(own ?? revision ?? 'main', text) };
}

/** A revision becomes part of a path and of an address. */
function checkedRevision(revision: string, text: string): string {
  const parts = revision.split('/');
  if (/^[A-Za-z0-9._/-]+$/.test(revision) && parts.every((part) => part !== '' && !/^[.-]|\.\./.test(part))) {
    return revision;
  }
  throw new UsageError(
    'revision-invalid',
    `Opening the model "${text}" failed: "${revision}" is no name of a branch, tag or commit`,
    { model: text, revision },
  );
}

/** True for a full commit id, which never moves. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}(?:[0-9a-f]{24})?$/.test(revision);
}
