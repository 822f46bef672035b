import { z } from 'zod';
import { labPredicateSchema } from './lab-predicate.js';
import { protocolSchema } from './protocol-schema.js';
import { manifestSchema, recordSchema } from './record-format.js';

/** JSON Schemas of the lab's files, by file name below docs/formats/; `scripts/write-lab-schemas.mjs` writes them. */
export function publishedSchemas(): Record<string, string> {
  const text = (title: string, schema: z.ZodType): string =>
    `${JSON.stringify({ title, ...z.toJSONSchema(schema, { io: 'input' }) }, null, '\t')}\n`;
  return {
    'protocol.schema.json': text('Waybill lab protocol, version 1', protocolSchema),
    'lab-manifest.schema.json': text('Waybill lab run manifest, version 1', manifestSchema),
    'lab-record.schema.json': text('Waybill lab run record, version 1', recordSchema),
    'lab-receipt.schema.json': text('Waybill lab accounting, predicate version 0.1', labPredicateSchema),
  };
}
