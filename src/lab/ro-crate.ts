import { canonicalJson } from '../base/canonical-json.js';
import { sha256Hex } from '../base/digest.js';
import { type Members, memberNames } from './archive-container.js';
import { archiveFiles } from './archive-layout.js';
import type { JudgedArchive } from './lab-receipt.js';

/**
 * Describes an archive as an RO-Crate 1.1 (https://w3id.org/ro/crate/1.1): its root, every member with size and digest,
 * and the run as an action of the program. A function of the other members alone.
 */
export function roCrate(members: Members, { run }: JudgedArchive): string {
  const { manifest, protocol } = run.part;
  const files = memberNames(members).filter(
    (name) => name !== archiveFiles.crate && name !== archiveFiles.sums,
  );
  const ended = run.selection.ended?.at;
  const graph = [
    {
      '@id': archiveFiles.crate,
      '@type': 'CreativeWork',
      about: { '@id': './' },
      conformsTo: { '@id': 'https://w3id.org/ro/crate/1.1' },
    },
    {
      '@id': './',
      '@type': 'Dataset',
      name: `Lab archive of protocol ${protocol.protocol.name}`,
      description: protocol.protocol.question,
      datePublished: ended ?? manifest.startedAt,
      license: 'None is stated; ask whoever published this archive',
      hasPart: files.map((name) => ({ '@id': name })),
      mentions: { '@id': '#run' },
    },
    ...files.map((name) => fileEntity(name, members.get(name)!)),
    {
      '@id': '#run',
      '@type': 'CreateAction',
      name: `Run of protocol ${protocol.protocol.name}`,
      instrument: { '@id': '#program' },
      object: { '@id': archiveFiles.protocol },
      result: [{ '@id': archiveFiles.records }, { '@id': archiveFiles.receipt }],
      startTime: manifest.startedAt,
      ...(ended === undefined ? {} : { endTime: ended }),
      actionStatus: {
        '@id':
          run.selection.status === 'completed'
            ? 'http://schema.org/CompletedActionStatus'
            : 'http://schema.org/FailedActionStatus',
      },
    },
    {
      '@id': '#program',
      '@type': 'SoftwareApplication',
      name: manifest.program.name,
      identifier: `sha256:${manifest.program.sha256}`,
    },
  ];
  return `${canonicalJson({ '@context': 'https://w3id.org/ro/crate/1.1/context', '@graph': graph })}\n`;
}

function fileEntity(name: string, bytes: Uint8Array): Record<string, unknown> {
  return {
    '@id': name,
    '@type': 'File',
    name,
    contentSize: String(bytes.byteLength),
    encodingFormat: encodingOf(name),
    identifier: `sha256:${sha256Hex(bytes)}`,
  };
}

const encodings: Readonly<Record<string, string>> = {
  json: 'application/json',
  jsonl: 'application/jsonl',
  md: 'text/markdown',
  txt: 'text/plain',
  xml: 'application/xml',
  yaml: 'application/yaml',
};

function encodingOf(name: string): string {
  return encodings[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
}
