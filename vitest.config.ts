import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    reporters: ['default', './test/summary-reporter.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Sessions that name no backend compute on the CPU here, whatever the machine has: GPUs have `npm run test:cuda`.
    env: { CUDA_VISIBLE_DEVICES: '' },
    pool: 'forks',
    maxWorkers: 2,
  },
});
