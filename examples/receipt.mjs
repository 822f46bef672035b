// A signed receipt, and a stranger's check of it: node examples/receipt.mjs [MODEL]
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  generateKeyPair,
  generateOptions,
  openModel,
  parsePrivateKey,
  parsePublicKey,
  runPredicate,
  runStatement,
  sessionSubjects,
  verifyReceipt,
  writeReceipt,
} from 'waybill';

const model = process.argv[2] ?? join(import.meta.dirname, '..', 'models', 'opt-books-draft');
const folder = await mkdtemp(join(tmpdir(), 'waybill-example-'));
const path = join(folder, 'run.intoto.jsonl');
const { privatePem, publicPem } = generateKeyPair();

const session = await openModel({ model, budgetBytes: 4 * 2 ** 20, contextPositions: 64 });
try {
  // The same frozen options go into the generation and into the receipt.
  const options = generateOptions({ maxNewTokens: 10 });
  const startedAt = new Date();
  const generation = session.generate(['The road to the village'], options);
  for await (const _ of generation);

  // Digests of the prompt and of the answer are salted: who keeps the salt can prove what they were, nobody else can
  // find a short answer by trying all. Keep the salt beside the receipt; it does not go into it.
  const salt = randomBytes(32);
  const facts = { outcome: generation.outcome, options, startedAt, finishedAt: new Date(), salt };
  const predicate = runPredicate(session, { ...facts, includeContent: false });
  const statement = runStatement(sessionSubjects(session), predicate);
  await writeReceipt(path, statement, parsePrivateKey(privatePem, 'own key'));
} finally {
  await session.close();
}

const report = (what, bytes) => {
  const keys = [{ name: 'own key', key: parsePublicKey(publicPem, 'own key') }];
  const { claims } = verifyReceipt(bytes, 'run.intoto.jsonl', { keys });
  const broken = claims.filter(({ verdict }) => verdict === 'broken');
  console.log(
    `${what}: ${broken.length === 0 ? 'nothing is broken' : broken.map(({ text }) => `"${text}"`).join(', ')}`,
  );
};
const bytes = await readFile(path);
report('as written', bytes);

// One byte of the payload changed: its text still parses, its signature does not fit.
const envelope = JSON.parse(bytes.toString('utf8'));
const payload = Buffer.from(envelope.payload, 'base64')
  .toString('utf8')
  .replace('"status":"completed"', '"status":"interrupted"');
const forged = { ...envelope, payload: Buffer.from(payload, 'utf8').toString('base64') };
report('changed', Buffer.from(`${JSON.stringify(forged)}\n`, 'utf8'));
await rm(folder, { recursive: true });
