import { type Compiler, loadCompiler } from './compiler.js';
import { type DeviceFacts, listDevices } from './device.js';
import { driverVersion, loadDriver, versionText } from './driver.js';
import { kernelCacheFolder } from './kernels.js';
import { type LinkFacts, linkFacts, usedDeviceBytes } from './monitor.js';

/** One GPU as `doctor` shows it. */
export interface DeviceStatus extends DeviceFacts {
  readonly usedBytes: number | null;
  readonly link: LinkFacts | null;
}

/** What is there for the CUDA backend, and what is missing. Nothing is opened or allocated on a GPU. */
export interface CudaStatus {
  /** Newest CUDA that the driver serves, or null with the reason in `driverProblem`. */
  readonly driver: string | null;
  readonly driverProblem: string | null;
  readonly devices: readonly DeviceStatus[];
  readonly compiler: Pick<Compiler, 'path' | 'version'> | null;
  readonly compilerProblem: string | null;
  readonly kernelCache: string;
}

export function cudaStatus(): CudaStatus {
  let driver: string | null = null;
  let driverProblem: string | null = null;
  let devices: DeviceStatus[] = [];
  try {
    const library = loadDriver();
    driver = versionText(driverVersion(library));
    devices = listDevices(library).map((device) => ({
      ...device,
      usedBytes: usedDeviceBytes(device.pciBusId),
      link: linkFacts(device.pciBusId),
    }));
  } catch (error) {
    driverProblem = messageOf(error);
  }
  let compiler: CudaStatus['compiler'] = null;
  let compilerProblem: string | null = null;
  try {
    const { path, version } = loadCompiler();
    compiler = { path, version };
  } catch (error) {
    compilerProblem = messageOf(error);
  }
  return { driver, driverProblem, devices, compiler, compilerProblem, kernelCache: kernelCacheFolder() };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
