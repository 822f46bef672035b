import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { readDocument, repository } from './support/documents.js';
import { Workplace } from './support/workplace.js';

type JsonSchema = Parameters<typeof z.fromJSONSchema>[0];

function publishedSchema(name: string): z.ZodType {
  const text = readFileSync(join(repository, 'docs', 'formats', name), 'utf8');
  return z.fromJSONSchema(JSON.parse(text) as JsonSchema);
}

/** Names in the first column of a document's tables; `source.files[]` names `source`. */
function fieldsIn(document: string): string[] {
  return readDocument(document)
    .split('\n')
    .flatMap((line) => [...(/^\| (`[^|]*) \|/.exec(line)?.[1] ?? '').matchAll(/`(\w+)/g)])
    .map(([, name]) => name!);
}

function firstLine(text: string): object {
  return JSON.parse(text.slice(0, text.indexOf('\n'))) as object;
}

describe('published schemas', () => {
  let workplace: Workplace;
  beforeAll(async () => {
    workplace = new Workplace();
    const command =
      'npx waybill generate --model models/opt-books-draft --prompt Hello -n 2 --prepared packed --receipt run.intoto.jsonl --trace moves.jsonl --trace-ops ops';
    const { exitCode, stderr } = await workplace.run('bash', ['-c', command]);
    expect(exitCode, stderr).toBe(0);
  });
  afterAll(() => {
    workplace.remove();
  });

  const read = (name: string): Record<string, unknown> =>
    JSON.parse(readFileSync(join(workplace.folder, name), 'utf8')) as Record<string, unknown>;

  test('they are those that the program checks with', async () => {
    const script = join(repository, 'scripts', 'make-schemas.mjs');
    const { exitCode, stderr } = await workplace.run(process.execPath, [script, '--check']);
    expect(stderr).toBe('');
    expect(exitCode).toBe(0);
  });

  test('a receipt follows its schema; without seal, or with a number for bytes, it does not', () => {
    const schema = publishedSchema('run-receipt.schema.json');
    const receipt = read('run.intoto.jsonl');
    const predicate = receipt.predicate as Record<string, unknown>;
    expect(schema.safeParse(receipt).error).toBeUndefined();
    const { seal: _seal, ...unsealed } = predicate;
    expect(schema.safeParse({ ...receipt, predicate: unsealed }).success).toBe(false);
    expect(schema.safeParse({ ...receipt, predicate: { ...predicate, budgetBytes: 5 } }).success).toBe(false);
    expect(schema.safeParse({ ...receipt, predicate: { ...predicate, more: 1 } }).success).toBe(false);
  });

  test('a manifest follows its schema; with another version it does not', () => {
    const schema = publishedSchema('prepared-manifest.schema.json');
    const manifest = read('packed/manifest.json');
    expect(schema.safeParse(manifest).error).toBeUndefined();
    expect(schema.safeParse({ ...manifest, version: 2 }).success).toBe(false);
  });

  test('documents explain every field', () => {
    const text = (name: string): string => readFileSync(join(workplace.folder, name), 'utf8');
    const predicate = Object.keys(read('run.intoto.jsonl').predicate as object).filter(
      (name) => name !== 'version',
    );
    const manifest = read('packed/manifest.json') as { tensors: object[]; description: object };
    const explained: readonly (readonly [document: string, names: readonly string[]])[] = [
      ['run-receipt.md', predicate],
      ['prepared.md', [...Object.keys(manifest), ...Object.keys(manifest.tensors[0]!)]],
      ['prepared.md', Object.keys(manifest.description)],
      ['trace.md', Object.keys(firstLine(text('moves.jsonl')))],
      ['op-trace.md', Object.keys(firstLine(text('ops/ops.jsonl')))],
    ];
    for (const [document, names] of explained)
      expect(fieldsIn(`docs/formats/${document}`), document).toEqual(expect.arrayContaining([...names]));
  });
});
