// What an open library instance owns.
#pragma once
#include <vector>

#include "api.h"
#include "job.h"
#include "pool.h"

typedef void (*SumFloats)(const float *from, size_t count, float *sum);

// A barrier inside a program is microseconds away; between programs the host thinks for about as long.
enum : int64_t { kernelSpinNs = 60000 };

struct Handle {
  // With more threads than processors a spinning thread takes the time of one that has work.
  Handle(int threads, int readers)
      : pool(threads, (unsigned)threads > std::thread::hardware_concurrency() ? 0 : kernelSpinNs), readers(readers, 0) {}
  ~Handle() {
    if (scratch) wb_release(scratch, (size_t)pool.threads() * scratchFloats * sizeof(float));
  }

  Pool pool;
  Pool readers;
  RunJob run = nullptr;
  SumFloats sum = nullptr;
  float *scratch = nullptr; // [threads, scratchFloats]
  std::vector<uint32_t> counters, marks, counts;
};
