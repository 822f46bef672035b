import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
  verify,
} from 'node:crypto';
import { z } from 'zod';
import { InputError } from '../base/errors.js';

/**
 * Dead Simple Signing Envelope v1.0.2 with Ed25519. The signature covers the pre-authentication encoding of the
 * payload type and the exact payload bytes; nothing is serialised again to verify.
 */
export const payloadType = 'application/vnd.in-toto+json';

export const envelopeSchema = z.strictObject({
  payloadType: z.string(),
  payload: z.base64(),
  signatures: z.array(z.strictObject({ keyid: z.string().optional(), sig: z.base64() })).min(1),
});
export type Envelope = z.infer<typeof envelopeSchema>;

/** PAE(type, body) = "DSSEv1" SP len(type) SP type SP len(body) SP body, lengths in bytes as ASCII decimals. */
export function preAuthenticationEncoding(type: string, body: Uint8Array): Buffer {
  const typeBytes = Buffer.from(type, 'utf8');
  return Buffer.concat([
    Buffer.from(`DSSEv1 ${typeBytes.length} `, 'utf8'),
    typeBytes,
    Buffer.from(` ${body.length} `, 'utf8'),
    body,
  ]);
}

/** Wraps payload bytes and signs them. */
export function signEnvelope(payload: Uint8Array, privateKey: KeyObject): Envelope {
  const signature = sign(null, preAuthenticationEncoding(payloadType, payload), privateKey);
  return {
    payloadType,
    payload: Buffer.from(payload).toString('base64'),
    signatures: [{ keyid: keyId(createPublicKey(privateKey)), sig: signature.toString('base64') }],
  };
}

/** The signature of the envelope that verifies under `publicKey`, or null. Its `keyid` is a hint and proves nothing. */
export function signatureBy(envelope: Envelope, publicKey: KeyObject): Envelope['signatures'][number] | null {
  const encoded = preAuthenticationEncoding(envelope.payloadType, Buffer.from(envelope.payload, 'base64'));
  const verifies = ({ sig }: { sig: string }): boolean =>
    verify(null, encoded, publicKey, Buffer.from(sig, 'base64'));
  return envelope.signatures.find(verifies) ?? null;
}

/** SHA-256 of the SubjectPublicKeyInfo (DER). */
export function keyId(publicKey: KeyObject): string {
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('hex');
}

/** A new Ed25519 pair as PEM (PKCS #8, SPKI). */
export function generateKeyPair(): { privatePem: string; publicPem: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return {
    privatePem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    publicPem: publicKey.export({ type: 'spki', format: 'pem' }).toString(),
  };
}

/** @throws InputError `bad-key` when the text is no Ed25519 private key in PEM */
export function parsePrivateKey(pem: string, name: string): KeyObject {
  return parseKey(() => createPrivateKey(pem), 'private', name);
}

/** @throws InputError `bad-key` when the text is no Ed25519 public key in PEM */
export function parsePublicKey(pem: string, name: string): KeyObject {
  if (pem.includes('PRIVATE KEY')) {
    throw new InputError(
      'bad-key',
      `Cannot use "${name}" as a public key: it holds a private key, want a public one`,
    );
  }
  return parseKey(() => createPublicKey(pem), 'public', name);
}

function parseKey(parse: () => KeyObject, kind: string, name: string): KeyObject {
  const wanted = `want an Ed25519 ${kind} key in PEM, as "waybill keygen" writes`;
  let key: KeyObject;
  try {
    key = parse();
  } catch (cause) {
    throw new InputError(
      'bad-key',
      `Cannot read the ${kind} key "${name}": it is no PEM key; ${wanted}`,
      { name },
      { cause },
    );
  }
  if (key.asymmetricKeyType === 'ed25519') return key;
  throw new InputError(
    'bad-key',
    `Cannot use the ${kind} key "${name}": it is of type ${key.asymmetricKeyType}; ${wanted}`,
    {
      name,
    },
  );
}
