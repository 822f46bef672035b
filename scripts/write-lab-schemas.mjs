// Writes the JSON Schemas below docs/formats/ from the built schemas that the program checks with.
import { writeFileSync } from 'node:fs';
import { publishedSchemas } from '../dist/lab/published-schema.js';

for (const [name, text] of Object.entries(publishedSchemas())) {
  writeFileSync(new URL(`../docs/formats/${name}`, import.meta.url), text);
}
