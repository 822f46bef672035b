// The words of one op, as src/backend/cpu/program.ts writes them: Float64, word 0 the opcode, absent spans 0.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { wordsPerOp = 32 };

enum Opcode {
  opGather = 1,
  opLinear = 2,
  opCompact = 3,
  opActiveInputs = 4,
  opActiveOutputs = 5,
  opActivate = 6,
  opGatedProduct = 7,
  opAdd = 8,
  opNorm = 9,
  opRope = 10,
  opStoreKv = 11,
  opAttention = 12,
  opRoundInput = 30,
  opCertify = 31,
  opQuantisedLinear = 20,
};

enum StoredType { storedF32 = 0, storedF16 = 1, storedBf16 = 2 };

enum ActivationCode {
  activationRelu = 0,
  activationRelu2 = 1,
  activationFatrelu = 2,
  activationSilu = 3,
  activationGelu = 4,
  activationGeluTanh = 5,
  activationQuickGelu = 6,
  activationSigmoid = 7,
  activationTanh = 8,
  activationIdentity = 9,
};

// Inputs of one block of the summation rule (docs/numerics.md).
enum { blockInputs = 128 };
