import { describe, it } from 'vitest';
import { openNative } from '../../src/backend/cpu/native-backend.js';
import { instructionSets, nativeStatus } from '../../src/backend/cpu/native-status.js';
import { describeBackendContract } from './contract.js';

const status = nativeStatus();

for (const instructionSet of instructionSets) {
  if (status.instructionSets.includes(instructionSet)) {
    describeBackendContract(`native ${instructionSet}`, (threads) => openNative({ threads, instructionSet }));
    continue;
  }
  const why = status.available ? 'this processor does not have it' : status.reason;
  describe(`backend contract: native ${instructionSet}`, () => {
    it.skip(`not run: ${why}`, () => {});
  });
}
