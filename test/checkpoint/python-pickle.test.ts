import { expect, test } from 'vitest';
import { unpickle } from '../../src/checkpoint/pickle.js';
import { PickleDict } from '../../src/checkpoint/pickle-value.js';
import { TorchTensor, torchHost } from '../../src/checkpoint/torch-values.js';

/**
 * A state dict as CPython's own pickler writes it under each protocol: a matrix, a parameter, a view of the matrix's
 * storage, a view beyond 2^32 elements, and torch's `_metadata` attribute. Base64.
 */
const pickles: Readonly<Record<number, string>> = {
  2:
    'gAJjY29sbGVjdGlvbnMKT3JkZXJlZERpY3QKcQApUnEBKFgIAAAAYS53ZWlnaHRxAmN0b3JjaC5fdXRpbHMKX3JlYnVpbGRf' +
    'dGVuc29yX3YyCnEDKChYBwAAAHN0b3JhZ2VxBGN0b3JjaApIYWxmU3RvcmFnZQpxBVgBAAAAMHEGWAMAAABjcHVxB0pwEQEA' +
    'dHEIUUsAS0ZN6AOGcQlN6ANLAYZxColoAClScQt0cQxScQ1YBgAAAGEuYmlhc3EOY3RvcmNoLl91dGlscwpfcmVidWlsZF9w' +
    'YXJhbWV0ZXIKcQ9oAygoaARoBVgBAAAAMXEQaAdLA3RxEVFLAEsDhXESSwGFcROJaAApUnEUdHEVUnEWiGgAKVJxF4dxGFJx' +
    'GVgEAAAAdGllZHEaaAMoKGgEaAVoBmgHSnARAQB0cRtRTegDS0VN6AOGcRxoColoAClScR10cR5ScR9YAQAAAGJxIGgDKCho' +
    'BGgFWAEAAAAycSFoB4oFAAAAAAJ0cSJRigX8////AUsCSwKGcSNLAksBhnEkiWgAKVJxJXRxJlJxJ3V9cShYCQAAAF9tZXRh' +
    'ZGF0YXEpaAApUnEqKFgAAAAAcSt9cSxYBwAAAHZlcnNpb25xLUsBc1gBAAAAYXEufXEvKGgtSwJYBQAAAGxvY2FscTBOdXVz' +
    'Yi4=',
  3:
    'gANjY29sbGVjdGlvbnMKT3JkZXJlZERpY3QKcQApUnEBKFgIAAAAYS53ZWlnaHRxAmN0b3JjaC5fdXRpbHMKX3JlYnVpbGRf' +
    'dGVuc29yX3YyCnEDKChYBwAAAHN0b3JhZ2VxBGN0b3JjaApIYWxmU3RvcmFnZQpxBVgBAAAAMHEGWAMAAABjcHVxB0pwEQEA' +
    'dHEIUUsAS0ZN6AOGcQlN6ANLAYZxColoAClScQt0cQxScQ1YBgAAAGEuYmlhc3EOY3RvcmNoLl91dGlscwpfcmVidWlsZF9w' +
    'YXJhbWV0ZXIKcQ9oAygoaARoBVgBAAAAMXEQaAdLA3RxEVFLAEsDhXESSwGFcROJaAApUnEUdHEVUnEWiGgAKVJxF4dxGFJx' +
    'GVgEAAAAdGllZHEaaAMoKGgEaAVoBmgHSnARAQB0cRtRTegDS0VN6AOGcRxoColoAClScR10cR5ScR9YAQAAAGJxIGgDKCho' +
    'BGgFWAEAAAAycSFoB4oFAAAAAAJ0cSJRigX8////AUsCSwKGcSNLAksBhnEkiWgAKVJxJXRxJlJxJ3V9cShYCQAAAF9tZXRh' +
    'ZGF0YXEpaAApUnEqKFgAAAAAcSt9cSxYBwAAAHZlcnNpb25xLUsBc1gBAAAAYXEufXEvKGgtSwJYBQAAAGxvY2FscTBOdXVz' +
    'Yi4=',
  4:
    'gASVoAEAAAAAAACMC2NvbGxlY3Rpb25zlIwLT3JkZXJlZERpY3SUk5QpUpQojAhhLndlaWdodJSMDHRvcmNoLl91dGlsc5SM' +
    'El9yZWJ1aWxkX3RlbnNvcl92MpSTlCgojAdzdG9yYWdllIwFdG9yY2iUjAtIYWxmU3RvcmFnZZSTlIwBMJSMA2NwdZRKcBEB' +
    'AHSUUUsAS0ZN6AOGlE3oA0sBhpSJaAIpUpR0lFKUjAZhLmJpYXOUaAWMEl9yZWJ1aWxkX3BhcmFtZXRlcpSTlGgHKChoCGgL' +
    'jAExlGgNSwN0lFFLAEsDhZRLAYWUiWgCKVKUdJRSlIhoAilSlIeUUpSMBHRpZWSUaAcoKGgIaAtoDGgNSnARAQB0lFFN6ANL' +
    'RU3oA4aUaBCJaAIpUpR0lFKUjAFilGgHKChoCGgLjAEylGgNigUAAAAAAnSUUYoF/P///wFLAksChpRLAksBhpSJaAIpUpR0' +
    'lFKUdX2UjAlfbWV0YWRhdGGUaAIpUpQojACUfZSMB3ZlcnNpb26USwFzjAFhlH2UKGg0SwKMBWxvY2FslE51dXNiLg==',
};

test.each([2, 3, 4])('what Python writes under protocol %d is read', (protocol) => {
  const state = unpickle(Buffer.from(pickles[protocol]!, 'base64'), 'f', torchHost('f'));
  expect(state).toBeInstanceOf(PickleDict);
  const tensors = [...(state as PickleDict).entries].map(([name, value]) => {
    const { storage, offset, shape, strides } = value as TorchTensor;
    expect(value).toBeInstanceOf(TorchTensor);
    return [name, storage.key, storage.className, storage.elements, offset, shape, strides];
  });
  expect(tensors).toEqual([
    ['a.weight', '0', 'HalfStorage', 70000, 0, [70, 1000], [1000, 1]],
    ['a.bias', '1', 'HalfStorage', 3, 0, [3], [1]],
    ['tied', '0', 'HalfStorage', 70000, 1000, [69, 1000], [1000, 1]],
    ['b', '2', 'HalfStorage', 2 ** 33, 2 ** 33 - 4, [2, 2], [2, 1]],
  ]);
});
