// Runs protocols one after another and puts their archives into receipts/, then writes the tables of results (needs
// npm run build, and a machine that does nothing else):
//   node scripts/make-receipts.mjs                                      all of protocols/*-small.yaml
//   node scripts/make-receipts.mjs aa-2.7b --model DIR [--reexecute 0]  those that are named
//   node scripts/make-receipts.mjs aa-2.7b --runs DIR                   runs made elsewhere: DIR/aa-2.7b/run and /aa
// An archive has the noise floor of an A/A run where a gate compares times, is signed with a key made for it, of which only
// the public half is kept, is audited, and some of its trials are executed again. What receipts/ holds of the same
// protocol goes into the new archive as an earlier attempt, but with --fresh: for a program that was never released with
// them. A verdict that is no pass is a result, and stays. An archive larger than --most bytes in Brotli does not lie
// beside the program: its receipt does, signed, with the digest of the archive.
import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import { readArchive } from '../dist/lab/archive-container.js';
import { archiveFiles } from '../dist/lab/archive-layout.js';
import { parseProtocol } from '../dist/lab/protocol-file.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const [receipts, protocols] = [join(root, 'receipts'), join(root, 'protocols')];
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string' },
    reexecute: { type: 'string', default: '2' },
    fresh: { type: 'boolean', default: false },
    runs: { type: 'string' },
    most: { type: 'string', default: '150000' },
  },
});
const small = readdirSync(protocols).filter((file) => file.endsWith('-small.yaml'));
const names = positionals.length > 0 ? positionals : small.map((file) => file.replace(/\.yaml$/, ''));
for (const name of names) {
  if (existsSync(join(protocols, `${name}.yaml`))) continue;
  console.error(`Cannot run "${name}": there is no "protocols/${name}.yaml"`);
  process.exit(2);
}

/** A pass, a failed gate, a gate that is not decided: results. Any other end is an end of this script. */
const verdicts = [0, 1, 5];

function waybill(args, allowed = [0]) {
  const { status, error } = spawnSync(process.execPath, [join(root, 'bin', 'waybill.js'), ...args], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (error !== undefined) throw error;
  if (!allowed.includes(status)) throw new Error(`waybill ${args.join(' ')} ended with exit code ${status}`);
}

/** Small, for a repository: the window reaches across the whole archive. */
function wrapped(bytes) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 24 };
  return brotliCompressSync(bytes, { params });
}

/** The signed receipt of an archive. */
async function receiptOf(bytes, path) {
  return wrapped((await readArchive(bytes, path)).get(archiveFiles.receipt));
}

async function earlierAttempt(name, digest, scratch) {
  const file = join(receipts, `${name}.zip.br`);
  if (values.fresh || !existsSync(file)) return [];
  const bytes = brotliDecompressSync(readFileSync(file));
  const manifest = JSON.parse((await readArchive(bytes, file)).get('manifest.json').toString());
  if (manifest.protocol.digest !== digest) return [];
  const path = join(scratch, 'earlier.zip');
  writeFileSync(path, bytes);
  return ['--attempt', path];
}

for (const name of names) {
  const scratch = mkdtempSync(join(tmpdir(), 'waybill-receipts-'));
  try {
    const path = join(protocols, `${name}.yaml`);
    const { protocol, digest } = parseProtocol(readFileSync(path), path);
    const model = values.model ?? join(protocols, protocol.model.path);
    console.log(`\n${name}, load average ${loadavg()[0].toFixed(2)}`);
    const place = values.runs === undefined ? scratch : join(values.runs, name);
    const [run, noise, zip] = [join(place, 'run'), join(place, 'aa'), join(scratch, `${name}.zip`)];
    const [key, publicKey] = [join(scratch, 'key.pem'), join(scratch, 'key.pub.pem')];
    const timed = protocol.gates.some(({ check }) => check === 'ratio-at-most');
    if (values.runs === undefined) {
      waybill(['lab', 'run', path, '--out', run, '--model', model, '--quiet'], verdicts);
      if (timed) waybill(['lab', 'run', path, '--aa', '--out', noise, '--model', model, '--quiet'], verdicts);
    }
    waybill(['keygen', join(scratch, 'key')]);
    const earlier = await earlierAttempt(name, digest, scratch);
    const more = [...(timed ? ['--aa', noise] : []), ...earlier];
    waybill(['lab', 'archive', run, '-o', zip, '--sign', key, ...more], verdicts);
    const again = values.reexecute === '0' ? [] : ['--reexecute', values.reexecute, '--model', model];
    waybill(['lab', 'audit', zip, '--key', publicKey, ...again], verdicts);
    const whole = readFileSync(zip);
    // What is far too large is not compressed for a minute to see it
    const archive = whole.length > 20 * Number(values.most) ? whole : wrapped(whole);
    const [kept, other] =
      archive.length > Number(values.most)
        ? [[`${name}.intoto.jsonl.br`, await receiptOf(whole, zip)], `${name}.zip.br`]
        : [[`${name}.zip.br`, archive], `${name}.intoto.jsonl.br`];
    const results = {
      [kept[0]]: kept[1],
      [`${name}.zip.sha256`]: readFileSync(`${zip}.sha256`),
      [`${name}.pub.pem`]: readFileSync(publicKey),
    };
    for (const [file, bytes] of Object.entries(results)) {
      const draft = join(receipts, `.${file}.tmp`);
      writeFileSync(draft, bytes);
      renameSync(draft, join(receipts, file));
    }
    rmSync(join(receipts, other), { force: true });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
execFileSync(process.execPath, [join(root, 'scripts', 'receipts-table.mjs')], { stdio: 'inherit' });
