import type { MachineRates } from '../../../src/acquire/price.js';

/** A machine that does everything at once. */
export const noRates: MachineRates = {
  denseBytesPerSecond: Infinity,
  rowBytesPerSecond: Infinity,
  rowStartSeconds: 0,
  extentBytesPerSecond: Infinity,
  computeBytesPerSecond: Infinity,
  certifyBytesPerSecond: Infinity,
  layerSeconds: 0,
  outsideSeconds: 0,
  setSeconds: 0,
  activeBytesPerSecond: Infinity,
  opSeconds: 0,
  moreOpSeconds: 0,
  pieceSeconds: 0,
  pieceGapSeconds: 0,
  wakeSeconds: 0,
  overlapShare: 0,
  roundTripSeconds: 0,
  readSeconds: 0,
  logitsSeconds: 0,
};
