import { type Document, isCollection, isNode, isScalar, LineCounter, parseDocument } from 'yaml';
import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { InputError } from '../base/errors.js';
import { checkProtocol } from './protocol-rules.js';
import { type Protocol, protocolSchema } from './protocol-schema.js';

/** A protocol as it was read. */
export interface ProtocolFile {
  readonly name: string;
  readonly protocol: Protocol;
  /** SHA-256 of the canonical JSON of everything but `frozen`, as written: no default of a program is in it. */
  readonly digest: string;
  readonly document: Document;
}

/** One thing that is wrong, at a place counted from 1. */
export interface ProtocolProblem {
  readonly line: number;
  readonly column: number;
  readonly path: string;
  readonly problem: string;
}

const mostBytes = 4 * 1024 * 1024;

/**
 * Reads a protocol: YAML 1.2 (JSON is YAML, too) in UTF-8 without byte order mark or carriage returns, no anchors, no
 * tags. Unknown and repeated keys are refused, with the line and column of each.
 * @throws InputError `protocol-encoding`, `protocol-syntax`, `protocol-invalid`; data.problems lists all
 */
export function parseProtocol(bytes: Uint8Array, name: string): ProtocolFile {
  const text = decode(bytes, name);
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    version: '1.2',
    schema: 'core',
    uniqueKeys: true,
    strict: true,
    prettyErrors: false,
    stringKeys: true,
  });
  const at = (offset: number): { line: number; column: number } => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  };
  const faults = [...document.errors, ...document.warnings];
  if (faults.length > 0) {
    const problems = faults.map(({ pos, message }) => ({ ...at(pos[0]), path: '', problem: message }));
    throw refusal(name, 'protocol-syntax', problems);
  }
  const data = plainData(document, name);
  const parsed = protocolSchema.safeParse(data);
  const place = (path: readonly PropertyKey[], ofKey = false) => at(offsetOf(document, path, ofKey));
  if (!parsed.success) {
    const problems = parsed.error.issues.flatMap((issue): ProtocolProblem[] => {
      if (issue.code === 'unrecognized_keys') {
        return issue.keys.map((key) => {
          const path = [...issue.path, key];
          return { ...place(path, true), path: path.join('.'), problem: `unknown key "${key}"` };
        });
      }
      return [{ ...place(issue.path), path: issue.path.join('.'), problem: issue.message }];
    });
    throw refusal(name, 'protocol-invalid', problems);
  }
  const broken = checkProtocol(parsed.data);
  if (broken.length > 0) {
    const problems = broken.map(({ path, problem }) => ({ ...place(path), path: path.join('.'), problem }));
    throw refusal(name, broken[0]!.code, problems);
  }
  return { name, protocol: parsed.data, digest: protocolDigest(data), document };
}

/** SHA-256 of the canonical form of plain data, less the top-level `frozen`. */
export function protocolDigest(data: unknown): string {
  const { frozen: _, ...rest } = data as Record<string, unknown>;
  return sha256Hex(Buffer.from(canonicalJson(rest), 'utf8'));
}

/** A protocol's data without `frozen`, for showing what two of them differ in. */
export function protocolData({ document }: ProtocolFile): Record<string, unknown> {
  const { frozen: _, ...rest } = document.toJS() as Record<string, unknown>;
  return rest;
}

function decode(bytes: Uint8Array, name: string): string {
  const refuse = (problem: string, cause?: unknown): never => {
    throw new InputError(
      'protocol-encoding',
      `Reading the protocol "${name}" failed: ${problem}`,
      { name },
      { cause },
    );
  };
  if (bytes.length > mostBytes) refuse(`it has ${bytes.length} bytes, want at most ${mostBytes}`);
  let text = '';
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    refuse('its bytes are not UTF-8', cause);
  }
  if (text.startsWith('\ufeff')) refuse('it begins with a byte order mark, want none');
  const carriageReturn = text.indexOf('\r');
  if (carriageReturn >= 0) {
    refuse(
      `line ${text.slice(0, carriageReturn).split('\n').length} ends in a carriage return, want "\\n" alone`,
    );
  }
  return text;
}

function plainData(document: Document, name: string): unknown {
  let data: unknown;
  try {
    data = document.toJS({ maxAliasCount: 0 });
    canonicalJson(data); // NaN and infinities, which YAML can write
  } catch (cause) {
    const problem = cause instanceof Error ? cause.message : String(cause);
    throw refusal(name, 'protocol-syntax', [{ line: 1, column: 1, path: '', problem }]);
  }
  return data;
}

/** Where the node at a path begins, or its nearest ancestor that is there; with `ofKey`, where its key does. */
function offsetOf(document: Document, path: readonly PropertyKey[], ofKey: boolean): number {
  for (let length = path.length; length > 0; length--) {
    const parent: unknown =
      length === 1 ? document.contents : document.getIn(path.slice(0, length - 1), true);
    if (!isCollection(parent)) continue;
    const last = path[length - 1]!;
    if (ofKey || length < path.length) {
      const pair = parent.items.find((item) => isPairOf(item, String(last)));
      const key = (pair as { key?: unknown } | undefined)?.key;
      if (isNode(key) && key.range) return key.range[0];
    }
    const node: unknown = parent.get(last, true);
    if (isNode(node) && node.range) return node.range[0];
  }
  return isNode(document.contents) && document.contents.range ? document.contents.range[0] : 0;
}

function isPairOf(item: unknown, name: string): boolean {
  const key = (item as { key?: unknown }).key;
  return isScalar(key) && String(key.value) === name;
}

function refusal(name: string, code: string, problems: readonly ProtocolProblem[]): InputError {
  const text = problems
    .map(({ line, column, path, problem }) => {
      const where = path === '' ? '' : ` (in "${path}")`;
      return `line ${line}, column ${column}${where}: ${problem.replace(/\.$/, '')}`;
    })
    .join('; ');
  return new InputError(code, `Reading the protocol "${name}" failed at ${text}`, { name, problems });
}
