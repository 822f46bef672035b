// Writes docs/formats/*.schema.json from the schemas that the program checks with (needs npm run build:ts). With --check
// nothing is written, and a file that is not what would be written is named: exit code 1.
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { manifestSchema, manifestVersion } from '../dist/checkpoint/prepared-manifest.js';
import { runPredicateSchema, runPredicateType } from '../dist/receipt/run-predicate.js';
import { statementSchema } from '../dist/receipt/statement.js';

const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), 'docs', 'formats');

const schemas = {
  'run-receipt.schema.json': {
    title: 'Waybill run receipt: in-toto Statement v1',
    description: `One line of an .intoto.jsonl file, or the payload of its DSSE envelope; predicate ${runPredicateType}`,
    schema: statementSchema.extend({
      predicateType: z.literal(runPredicateType),
      predicate: runPredicateSchema,
    }),
  },
  'prepared-manifest.schema.json': {
    title: `Waybill prepared form, version ${manifestVersion}: manifest.json`,
    description: 'See prepared.md; what one schema cannot say (offsets, sums, order) is checked besides',
    schema: manifestSchema,
  },
};

const check = process.argv.includes('--check');
for (const [name, { title, description, schema }] of Object.entries(schemas)) {
  const { $schema, ...body } = z.toJSONSchema(schema, { target: 'draft-2020-12' });
  const text = `${JSON.stringify({ $schema, title, description, ...body }, null, '\t')}\n`;
  const path = join(folder, name);
  if (!check) {
    writeFileSync(path, text);
    console.log(`wrote docs/formats/${name}`);
  } else if (read(path) !== text) {
    console.error(
      `docs/formats/${name} is not what the program checks with: run "node scripts/make-schemas.mjs"`,
    );
    process.exitCode = 1;
  }
}

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
