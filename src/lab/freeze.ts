import { TamperedError, UsageError } from '../base/errors.js';
import { type ProtocolFile, parseProtocol } from './protocol-file.js';

/** Why a protocol takes the place of an earlier one. */
export interface Supersession {
  readonly earlier: ProtocolFile;
  readonly reason: string;
}

/**
 * The text of a protocol with its digest in `frozen`, comments kept. `at` is the time with its zone.
 * @throws UsageError `already-frozen`, `supersession-mismatch`; TamperedError as `checkFrozen` for the earlier one
 */
export function freezeProtocol(
  file: ProtocolFile,
  at: string,
  supersession: Supersession | null = null,
): string {
  if (file.protocol.frozen !== undefined) {
    throw new UsageError(
      'already-frozen',
      `Cannot freeze "${file.name}": it was frozen at ${file.protocol.frozen.at}; a change needs a new protocol that supersedes it`,
      { digest: file.protocol.frozen.digest },
    );
  }
  const document = file.document.clone();
  if (supersession !== null) supersede(file, document, supersession);
  const digest = parseProtocol(Buffer.from(document.toString(printing), 'utf8'), file.name).digest;
  document.set('frozen', document.createNode({ digest, at }));
  const text = document.toString(printing);
  checkFrozen(parseProtocol(Buffer.from(text, 'utf8'), file.name));
  return text;
}

// Folding would be harmless, and would make a frozen text differ from what its author wrote.
const printing = { lineWidth: 0 } as const;

function supersede(
  { name, protocol }: ProtocolFile,
  document: ProtocolFile['document'],
  { earlier, reason }: Supersession,
): void {
  checkFrozen(earlier);
  const declared = protocol.supersedes?.digest;
  if (declared !== undefined && declared !== earlier.digest) {
    throw new UsageError(
      'supersession-mismatch',
      `Cannot freeze "${name}": it says that it supersedes ${declared}, and "${earlier.name}" is ${earlier.digest}`,
      { declared, found: earlier.digest },
    );
  }
  document.set('supersedes', document.createNode({ digest: earlier.digest, reason }));
}

/**
 * @throws UsageError `not-frozen`; TamperedError `protocol-changed` where the frozen digest does not hold
 */
export function checkFrozen({ name, protocol, digest }: ProtocolFile): void {
  if (protocol.frozen === undefined) {
    throw new UsageError(
      'not-frozen',
      `Cannot use the protocol "${name}": it is not frozen, run "waybill lab freeze" first`,
      { digest },
    );
  }
  if (protocol.frozen.digest === digest) return;
  throw new TamperedError(
    'protocol-changed',
    `Cannot use the protocol "${name}": it was changed after it was frozen; its digest is ${digest}, frozen as ${protocol.frozen.digest}`,
    { digest, frozen: protocol.frozen.digest },
  );
}
