// A pause between looks at a value that another thread will change. Static, so that no instruction-set unit shares it.
#pragma once

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}
