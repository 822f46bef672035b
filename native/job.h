// What the pool hands to the kernels of an instruction set. Plain data and builtins only: this header is compiled
// into every instruction-set unit and must not leave an inline function behind that the linker could share.
#pragma once
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "program.h"
#include "relax.h"

// Failures that a kernel can find; `status` holds (op index + 1) * 256 + code, or 0.
enum FailureCode { failureKvOverflow = 1, failureIndexOutOfRange = 2, failureUnknownOp = 3 };

// Columns that one step of `compact` covers.
enum { compactColumns = 1024 };

// Scratch of one thread in floats: panel of widened weights, accumulators, gathered inputs, partial outputs.
enum {
  panelFloats = 8 * (blockInputs * 32 + 16),
  accumulatorFloats = 8 * 1024,
  gatheredFloats = 16 * blockInputs,
  partialFloats = 64 * 256,
  scratchFloats = panelFloats + accumulatorFloats + gatheredFloats + partialFloats,
};

struct Job {
  const double *program; // [ops, wordsPerOp]
  size_t ops;
  int threads;
  uint32_t *counters; // two an op, from 0: the next item to take
  uint32_t *marks;    // one a column of the widest compact
  uint32_t *counts;   // one per compactColumns columns
  int64_t *status;
  void (*wait)(void *barrier, int thread); // returns when every thread of the job has called it
  void *barrier;
};

typedef void (*LowBitRows)(const double *words, const void *weights, const int16_t *directions, uint8_t *copy,
                           uint8_t *room);
typedef void (*RunJob)(const Job *job, int thread, float *scratch);

// One per compiled instruction-set unit; each is the only symbol that its object file gives away.
extern "C" {
void waybill_run_baseline(const Job *job, int thread, float *scratch);
void waybill_run_avx2(const Job *job, int thread, float *scratch);
void waybill_run_avx512(const Job *job, int thread, float *scratch);
void waybill_sum_baseline(const float *from, size_t count, float *sum);
void waybill_sum_avx2(const float *from, size_t count, float *sum);
void waybill_sum_avx512(const float *from, size_t count, float *sum);
void waybill_low_bit_rows_baseline(const double *words, const void *weights, const int16_t *directions, uint8_t *copy,
                                   uint8_t *room);
void waybill_low_bit_rows_avx2(const double *words, const void *weights, const int16_t *directions, uint8_t *copy,
                               uint8_t *room);
void waybill_low_bit_rows_avx512(const double *words, const void *weights, const int16_t *directions, uint8_t *copy,
                                 uint8_t *room);
size_t waybill_low_bit_room_baseline(size_t inputs, size_t directions);
}
