import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { watchDevice } from '../../src/backend/cuda/device-state.js';
import type { ComputeProcess, MonitoringLibrary } from '../../src/backend/cuda/monitoring-library.js';
import { buildArchive } from '../../src/lab/archive.js';
import { readPart } from '../../src/lab/archive-part.js';
import { checkPart } from '../../src/lab/audit-part.js';
import { type DeviceMonitor, foreignProcesses } from '../../src/lab/device-monitor.js';
import { takeLease } from '../../src/lab/lease.js';
import { readRunFolder } from '../../src/lab/run-folder.js';
import { runProtocol } from '../../src/lab/runner.js';
import { type Bench, liveProtocol, openBench } from './support/live-protocol.js';
import { sessionArm } from './support/sample-protocol.js';

/** Answers as libnvidia-ml does; what is in `broken` fails. */
function fakeLibrary(processes: number, broken: readonly string[] = []): MonitoringLibrary {
  const uint = (value: number) => (room: ArrayBufferView | null) => {
    (room as Uint32Array)[0] = value;
    return 0;
  };
  const calls: Record<string, (...values: never[]) => number> = {
    nvmlInit_v2: () => 0,
    nvmlDeviceGetHandleByPciBusId_v2: (id: string, room: BigUint64Array) => {
      room[0] = 42n;
      return id === '0000:01:00.0' ? 0 : 6;
    },
    nvmlDeviceGetUUID: (_device: bigint, room: Buffer) => {
      room.write('GPU-1234\0', 'latin1');
      return 0;
    },
    nvmlDeviceGetClockInfo: (_device: bigint, type: number, room: Uint32Array) => uint(1000 + type)(room),
    nvmlDeviceGetTemperature: (_device: bigint, _sensor: number, room: Uint32Array) => uint(61)(room),
    nvmlDeviceGetCurrentClocksThrottleReasons: (_device: bigint, room: BigUint64Array) => {
      room[0] = 0x4n | 0x40n | (1n << 40n);
      return 0;
    },
    nvmlDeviceGetPowerUsage: (_device: bigint, room: Uint32Array) => uint(345_000)(room),
    nvmlDeviceGetEnforcedPowerLimit: (_device: bigint, room: Uint32Array) => uint(700_000)(room),
    // nvml.h: NVML_STRUCT_VERSION(Memory, 2), with total, reserved, free and used behind it
    nvmlDeviceGetMemoryInfo_v2: (_device: bigint, room: BigUint64Array) => {
      if (room[0] !== 0x2000028n) return 25;
      room.set([100n, 7n, 53n, 40n], 1);
      return 0;
    },
    nvmlDeviceGetComputeRunningProcesses_v3: (_device: bigint, count: Uint32Array, infos: DataView) => {
      const places = count[0]!;
      count[0] = processes;
      if (places < processes) return 7;
      for (let index = 0; index < processes; index++) {
        infos.setUint32(24 * index, 100 + index, true);
        infos.setBigUint64(24 * index + 8, index === 0 ? 0xffff_ffff_ffff_ffffn : BigInt(index), true);
      }
      return 0;
    },
  };
  for (const name of broken) calls[name] = () => 999;
  return calls as unknown as MonitoringLibrary;
}

describe('a watched GPU', () => {
  test('tells clocks, heat, power, throttling, memory and who computes', () => {
    const device = watchDevice('0000:01:00.0', fakeLibrary(3))!;
    expect(device.uuid).toBe('GPU-1234');
    expect(device.state()).toEqual({
      clockMegahertz: 1001,
      memoryClockMegahertz: 1002,
      temperatureCelsius: 61,
      throttleReasons: ['sw-power-cap', 'hw-thermal-slowdown', 'bit-40'],
      powerMilliwatts: 345_000,
      powerCapMilliwatts: 700_000,
      usedBytes: 40,
    });
    expect(device.computeProcesses()).toEqual([
      { pid: 100, usedBytes: null },
      { pid: 101, usedBytes: 1n },
      { pid: 102, usedBytes: 2n },
    ]);
    expect(watchDevice('0000:01:00.0', fakeLibrary(200))!.computeProcesses()).toHaveLength(200);
  });

  test('says nothing where the library does not', () => {
    expect(watchDevice('0000:99:00.0', fakeLibrary(0))).toBeNull();
    expect(watchDevice('0000:01:00.0', null)).toBeNull();
    const silent = fakeLibrary(0, [
      'nvmlDeviceGetUUID',
      'nvmlDeviceGetClockInfo',
      'nvmlDeviceGetTemperature',
      'nvmlDeviceGetCurrentClocksThrottleReasons',
      'nvmlDeviceGetPowerUsage',
      'nvmlDeviceGetEnforcedPowerLimit',
      'nvmlDeviceGetMemoryInfo_v2',
      'nvmlDeviceGetComputeRunningProcesses_v3',
    ]);
    const device = watchDevice('0000:01:00.0', silent)!;
    expect(device.uuid).toBeNull();
    expect(Object.values(device.state())).toEqual([null, null, null, null, null, null, null]);
    expect(device.computeProcesses()).toBeNull();
  });
});

describe('processes of others on a GPU', () => {
  const found = (...pids: number[]): ComputeProcess[] => pids.map((pid) => ({ pid, usedBytes: null }));
  const pidsOf = (list: readonly ComputeProcess[]) => list.map(({ pid }) => pid);

  test('are all but those of the run, where the driver knows these', () => {
    expect(pidsOf(foreignProcesses(found(5, 6, 7), new Set([6]), new Set(), 1))).toEqual([5, 7]);
    expect(pidsOf(foreignProcesses(found(5), new Set([6]), new Set(), 0))).toEqual([5]);
  });

  test('are those that were there before, and newcomers beyond the own, where it does not', () => {
    expect(pidsOf(foreignProcesses(found(900), new Set([6]), new Set(), 1))).toEqual([]);
    expect(pidsOf(foreignProcesses(found(800, 900), new Set([6]), new Set([800]), 1))).toEqual([800]);
    expect(pidsOf(foreignProcesses(found(900, 901), new Set([6]), new Set(), 1))).toEqual([900, 901]);
  });
});

describe('a run on a GPU', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await openBench();
  });
  afterAll(() => bench.close());

  /** With `auto` the run has a GPU to watch, and computes wherever it can. */
  const protocolOf = (foreign: 'recorded' | 'fatal') =>
    liveProtocol(bench, {
      arms: [
        sessionArm('stream', { backend: 'auto', kernels: 'auto' }),
        sessionArm('packets', { backend: 'auto', kernels: 'auto', policy: 'packets' }),
      ],
      gates: [{ name: 'all', family: 'resources', check: 'complete' }],
      foreignProcesses: foreign,
    });
  const monitorOf = (processes: () => ComputeProcess[]): DeviceMonitor => {
    const device = watchDevice('0000:01:00.0', fakeLibrary(0))!;
    return {
      resource: device.uuid!,
      facts: { name: 'Some GPU', memoryBytes: '8589934592', driver: '13.0' },
      state: () => device.state(),
      usedBytes: () => device.usedBytes(),
      computeProcesses: processes,
    };
  };
  let runs = 0;
  const runWith = async (foreign: 'recorded' | 'fatal', monitor: DeviceMonitor) => {
    const protocolPath = await bench.freeze(protocolOf(foreign));
    const runPath = join(bench.folder, `gpu-${++runs}`);
    const evaluation = await runProtocol({ protocolPath, runPath, leaseFolder: bench.leaseFolder, monitor });
    return { evaluation, runPath };
  };

  test('locks it by its UUID, one run at a time', async () => {
    const held = await takeLease(['GPU-1234'], bench.leaseFolder);
    await expect(
      runWith(
        'recorded',
        monitorOf(() => []),
      ),
    ).rejects.toMatchObject({
      code: 'lease-held',
      message: expect.stringContaining('"GPU-1234"'),
    });
    await held.release();
    const { runPath } = await runWith(
      'recorded',
      monitorOf(() => []),
    );
    const { environment } = (await readRunFolder(runPath)).manifest;
    expect(environment.lease).toContain('GPU-1234');
    expect(environment.gpu).toEqual({ name: 'Some GPU', memoryBytes: '8589934592', driver: '13.0' });
    expect(await readdir(bench.leaseFolder)).toEqual([]);
  });

  test('records its state and the processes of others with each trial', async () => {
    const monitor = monitorOf(() => [{ pid: 77, usedBytes: 5n }]);
    const { evaluation, runPath } = await runWith('recorded', monitor);
    expect(evaluation).toMatchObject({ verdict: 'pass' });
    const { records } = await readRunFolder(runPath);
    for (const record of records) {
      if (record.kind !== 'trial') continue;
      expect(record.machine.after).toMatchObject({
        clocksMegahertz: '1001',
        memoryClockMegahertz: '1002',
        temperatureCelsius: '61',
        throttleReasons: ['sw-power-cap', 'hw-thermal-slowdown', 'bit-40'],
        powerMilliwatts: '345000',
        powerCapMilliwatts: '700000',
        deviceUsedBytes: '40',
        foreignProcesses: [{ pid: 77, usedBytes: '5' }],
      });
      expect(record.samples.every(({ deviceUsedBytes }) => deviceUsedBytes === '40')).toBe(true);
    }
  });

  test('is not begun, and does not go on, where the protocol makes others fatal', async () => {
    const there = monitorOf(() => [{ pid: 77, usedBytes: null }]);
    await expect(runWith('fatal', there)).rejects.toMatchObject({ code: 'foreign-process', exitCode: 3 });
    expect(await readdir(bench.leaseFolder)).toEqual([]);
    let readings = 0;
    // Three of them come in the middle, more than the run itself can be
    const coming = monitorOf(() =>
      ++readings < 6 ? [] : [70, 71, 72].map((pid) => ({ pid, usedBytes: null })),
    );
    const { evaluation, runPath } = await runWith('fatal', coming);
    expect(evaluation).toMatchObject({ status: 'failed', exitCode: 4 });
    const { records } = await readRunFolder(runPath);
    expect(records.at(-2)).toMatchObject({
      kind: 'trial',
      status: 'failed',
      error: { code: 'foreign-process', message: expect.stringContaining('processes 70, 71, 72') },
    });
  });

  test('cannot call a trial whole that others computed beside, where the protocol makes them fatal', async () => {
    const { runPath } = await runWith(
      'fatal',
      monitorOf(() => []),
    );
    const { members } = await buildArchive({
      run: runPath,
      noise: null,
      attempts: [],
      attachments: [],
      privateKey: null,
    });
    const part = readPart(members, '');
    const records = part.records.map((record) =>
      record.kind === 'trial'
        ? {
            ...record,
            machine: {
              ...record.machine,
              after: { ...record.machine.after, foreignProcesses: [{ pid: 7, usedBytes: null }] },
            },
          }
        : record,
    );
    expect(() => checkPart(part)).not.toThrow();
    expect(() => checkPart({ ...part, records })).toThrow('makes fatal');
  });
});
