// Writes a synthetic OPT checkpoint: node scripts/make-checkpoint.mjs --shape opt-1.3b --out DIR (needs npm run build).
// With --digest-only it writes nothing and prints the digest that protocols name the checkpoint by.
import { Command, Option } from 'commander';

const load = async (name) => {
  try {
    return await import(new URL(`../dist/${name}`, import.meta.url).href);
  } catch (error) {
    if (error?.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    console.error('Cannot make a checkpoint: the compiled program is missing, run "npm run build:ts" first');
    process.exit(3);
  }
};
const { makeCheckpoint, syntheticSourceDigest } = await load('checkpoint/synthetic.js');
const { syntheticShapes } = await load('checkpoint/synthetic-opt.js');
const { formatByteSize } = await load('base/byte-size.js');
const { WaybillError } = await load('base/errors.js');

const program = new Command('make-checkpoint')
  .description('Write an OPT checkpoint with seeded random weights and a chosen active share (no tokenizer)')
  .addOption(
    new Option('--shape <name>', 'sizes')
      .choices([...Object.keys(syntheticShapes), 'custom'])
      .default('custom'),
  )
  .option('--layers <count>', 'layers', Number)
  .option('--hidden <count>', 'hidden size', Number)
  .option('--ffn <count>', 'neurons of a layer (default 4 x hidden)', Number)
  .option('--heads <count>', 'attention heads (default hidden / 64)', Number)
  .option('--vocab <count>', 'vocabulary (default 50272)', Number)
  .option('--positions <count>', 'positions (default 2048)', Number)
  .option('--active <share>', 'share of neurons that a token activates', Number, 0.034)
  .option(
    '--zipf <exponent>',
    "popularity of neurons by Zipf's law of their ranks (default: normal thresholds)",
    Number,
  )
  .option('--position-share <share>', 'share of layer inputs that neighbouring tokens have in common', Number)
  .option('--seed <number>', 'seed of the weights', Number, 1)
  .addOption(new Option('--dtype <type>', 'storage type').choices(['f16', 'bf16', 'f32']).default('f16'))
  .option('--out <folder>', 'folder to make; absent or empty')
  .option('--digest-only', 'write nothing, print the digest of the files as a source (takes as long)')
  .parse();
const options = program.opts();

const base = options.shape === 'custom' ? undefined : syntheticShapes[options.shape];
if (base === undefined && (options.layers === undefined || options.hidden === undefined)) {
  program.error('error: give --shape, or --layers and --hidden', { exitCode: 2 });
}
if ((options.out === undefined) === (options.digestOnly !== true)) {
  program.error('error: give either --out or --digest-only', { exitCode: 2 });
}
const hidden = options.hidden ?? base.hidden;
const resized = base === undefined || hidden !== base.hidden;
const shape = {
  layers: options.layers ?? base.layers,
  hidden,
  ffn: options.ffn ?? (resized ? 4 * hidden : base.ffn),
  heads: options.heads ?? (resized ? Math.max(1, Math.floor(hidden / 64)) : base.heads),
  vocabulary: options.vocab ?? base?.vocabulary ?? 50272,
  positions: options.positions ?? base?.positions ?? 2048,
};

const started = process.hrtime.bigint();
try {
  const made = {
    shape,
    active: options.active,
    seed: options.seed,
    type: options.dtype,
    ...(options.zipf === undefined ? {} : { popularity: { kind: 'zipf', exponent: options.zipf } }),
    ...(options.positionShare === undefined ? {} : { positionShare: options.positionShare }),
    onProgress: (done, total) => {
      if (process.stderr.isTTY) process.stderr.write(`\r${Math.floor((100 * done) / total)} %`);
    },
  };
  if (options.digestOnly === true) console.log(await syntheticSourceDigest(made));
  else {
    const byteLength = await makeCheckpoint({ directory: options.out, ...made });
    const seconds = Number(process.hrtime.bigint() - started) / 1e9;
    if (process.stderr.isTTY) process.stderr.write('\r');
    console.log(`${options.out}: ${formatByteSize(byteLength)} of weights in ${seconds.toFixed(1)} s`);
  }
} catch (error) {
  if (!(error instanceof WaybillError)) throw error;
  console.error(`${error.message} [${error.code}]`);
  process.exitCode = error.exitCode;
}
