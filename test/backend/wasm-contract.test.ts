import { openWasm } from '../../src/backend/cpu/wasm-backend.js';
import { describeBackendContract } from './contract.js';

describeBackendContract('wasm simd', (threads) => openWasm({ threads }));
