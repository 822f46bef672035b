// An arm as somebody else may write it: "tokens" are sums of the prompt, logits digests are made up from them.
// The first argument says how it behaves: good, drift (one digest differs), bare (no digests), crash, hang, garbage,
// slow-exit, late (20 ms before each answer).
import { createHash } from 'node:crypto';
import { createInterface } from 'node:readline';

const [behaviour = 'good'] = process.argv.slice(2);
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const digest = (text) => createHash('sha256').update(text).digest('hex');
let episodes = 0;

say({ type: 'ready', arm: { backend: 'echo' }, setupMoved: { 'dense-weights': '10' } });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, newTokens, requests } = JSON.parse(line);
  episodes++;
  if (behaviour === 'crash' && episodes === 2) {
    process.stderr.write('out of luck\n');
    process.exit(9);
  }
  if (behaviour === 'hang' && episodes === 2) {
    setInterval(() => {}, 1000);
    continue;
  }
  if (behaviour === 'garbage' && episodes === 2) process.stdout.write('[1, 2\n');
  const began = process.hrtime.bigint();
  if (behaviour === 'late') await new Promise((resolve) => setTimeout(resolve, 20));
  const prefillNs = behaviour === 'late' ? String(process.hrtime.bigint() - began) : '5';
  const results = requests.map(({ promptIds }) => {
    const sum = promptIds.reduce((a, b) => a + b, 0);
    const tokenIds = Array.from({ length: newTokens }, (_, index) => sum + index);
    const drifts = behaviour === 'drift' && episodes === 2;
    const logitsDigests = tokenIds.map((token, index) =>
      digest(`${token}${drifts && index === 1 ? '!' : ''}`),
    );
    return behaviour === 'bare'
      ? { tokenIds }
      : { tokenIds, logitsDigests, prefillNs, decodeStepNs: ['1', '2'] };
  });
  say({
    type: 'token',
    id,
    request: 0,
    tokenId: results[0].tokenIds[0],
    ...(behaviour === 'bare' ? {} : { logitsDigest: results[0].logitsDigests[0] }),
  });
  say({
    type: 'result',
    id,
    requests: results,
    bytes: { moved: { 'dense-weights': '100' } },
    peaks: { heldBytes: '77' },
  });
}
