#pragma once

enum InstructionSet { setBaseline = 0, setAvx2 = 1, setAvx512 = 2 };

// Bit n is set where instruction set n is compiled in, and the processor and the system have it.
int instructionSets();
