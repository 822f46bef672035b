#include "cpu.h"

#if defined(__x86_64__) && !defined(WAYBILL_PLAIN_VECTORS)
#include <cpuid.h>
#include <stdint.h>

// The system saves the registers of an extension only if XCR0 says so; a processor flag alone is not enough.
static uint64_t savedState() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

int instructionSets() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 1 << setBaseline;
  const bool osxsave = c & (1u << 27), avx = c & (1u << 28), f16c = c & (1u << 29);
  if (!osxsave || !avx || !f16c || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 1 << setBaseline;
  const uint64_t state = savedState();
  int sets = 1 << setBaseline;
  const bool avx2 = b & (1u << 5);
  if (avx2 && (state & 0x6) == 0x6) sets |= 1 << setAvx2;
  // F, DQ, BW, VL; opmask and both halves of the zmm registers are saved.
  const unsigned needed = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  if (avx2 && (b & needed) == needed && (state & 0xe6) == 0xe6) sets |= 1 << setAvx512;
  return sets;
}
#else
int instructionSets() { return 1 << setBaseline; }
#endif
