export { activationCodes, encodeProgram, opcodes, wordsPerOp } from '../program.js';
