export interface TensorSource {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** A safetensors file from a header as text (or an object) and its data. */
export function rawSafetensors(header: string | object, data: Uint8Array, headerBytes?: bigint): Buffer {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(headerBytes ?? BigInt(json.byteLength));
  return Buffer.concat([prefix, json, data]);
}

/** A well-formed safetensors file. */
export function safetensorsFile(tensors: Readonly<Record<string, TensorSource>>): Buffer {
  const header: Record<string, object> = { __metadata__: { format: 'pt' } };
  let at = 0;
  for (const [name, { dtype, shape, bytes }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.byteLength] };
    at += bytes.byteLength;
  }
  return rawSafetensors(header, Buffer.concat(Object.values(tensors).map(({ bytes }) => bytes)));
}

/** F16 tensors of these shapes, each byte counted on from 1. */
export function f16Tensors(
  shapes: Readonly<Record<string, readonly number[]>>,
): Record<string, TensorSource> {
  let next = 0;
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => {
      const length = 2 * shape.reduce((product, size) => product * size, 1);
      const bytes = Uint8Array.from({ length }, () => ++next & 0x3f);
      return [name, { dtype: 'F16', shape, bytes }];
    }),
  );
}
