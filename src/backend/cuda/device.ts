import { SetupError, UsageError } from '../../base/errors.js';
import { check, type DriverLibrary } from './driver.js';

/** What is known of a GPU before a context is made on it. */
export interface DeviceFacts {
  readonly index: number;
  readonly name: string;
  /** Compute capability times 10: 75, 90. */
  readonly architecture: number;
  readonly multiprocessors: number;
  /** Largest shared memory that one block of threads can ask for. */
  readonly sharedBytes: number;
  readonly totalBytes: number;
  readonly pciBusId: string;
}

const attributes = { multiprocessors: 16, major: 75, minor: 76, sharedOptIn: 97 } as const;
const oldestArchitecture = 75;

/** GPUs that the driver shows to this process. */
export function listDevices(driver: DriverLibrary): DeviceFacts[] {
  const count = new Int32Array(1);
  check(driver, 'cuDeviceGetCount', driver.cuDeviceGetCount(count));
  return Array.from({ length: count[0]! }, (_, index) => deviceFacts(driver, index));
}

function deviceFacts(driver: DriverLibrary, index: number): DeviceFacts {
  const device = deviceHandle(driver, index);
  const attribute = (which: keyof typeof attributes): number => {
    const value = new Int32Array(1);
    check(driver, 'cuDeviceGetAttribute', driver.cuDeviceGetAttribute(value, attributes[which], device));
    return value[0]!;
  };
  const text = (call: 'cuDeviceGetName' | 'cuDeviceGetPCIBusId'): string => {
    const room = Buffer.alloc(256);
    check(driver, call, driver[call](room, room.byteLength, device));
    return room.toString('utf8', 0, room.indexOf(0));
  };
  const bytes = new BigUint64Array(1);
  check(driver, 'cuDeviceTotalMem', driver.cuDeviceTotalMem_v2(bytes, device));
  return {
    index,
    name: text('cuDeviceGetName'),
    architecture: attribute('major') * 10 + attribute('minor'),
    multiprocessors: attribute('multiprocessors'),
    sharedBytes: attribute('sharedOptIn'),
    totalBytes: Number(bytes[0]!),
    pciBusId: text('cuDeviceGetPCIBusId'),
  };
}

export function deviceHandle(driver: DriverLibrary, index: number): number {
  const device = new Int32Array(1);
  check(driver, 'cuDeviceGet', driver.cuDeviceGet(device, index));
  return device[0]!;
}

/** Throws `SetupError` `no-gpu` or `gpu-too-old`, `UsageError` `no-such-device`. */
export function chooseDevice(driver: DriverLibrary, index: number): DeviceFacts {
  const devices = listDevices(driver);
  if (devices.length === 0) {
    throw new SetupError('no-gpu', 'Cannot open CUDA: the driver finds no GPU (see CUDA_VISIBLE_DEVICES)');
  }
  const device = devices[index];
  if (device === undefined) {
    throw new UsageError(
      'no-such-device',
      `Cannot open GPU ${index}: this process sees ${devices.length}, numbered from 0`,
      { device: index, devices: devices.length },
    );
  }
  if (device.architecture < oldestArchitecture) {
    throw new SetupError(
      'gpu-too-old',
      `Cannot open "${device.name}": its compute capability is ${device.architecture / 10}, 7.5 or later is wanted`,
    );
  }
  return device;
}
