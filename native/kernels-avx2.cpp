// Kernels for processors with AVX2; compiled with flags of its own, so everything but the entries is local.
#include "job.h"

#include <immintrin.h>

namespace {
#include "numbers.h"
#include "vector-avx2.h"
#include "kernels.h"
} // namespace

void waybill_run_avx2(const Job *job, int thread, float *scratch) { runProgram(job, thread, scratch); }
void waybill_sum_avx2(const float *from, size_t count, float *sum) { sumFloats(from, count, sum); }
void waybill_low_bit_rows_avx2(const double *words, const void *weights, const int16_t *directions, uint8_t *copy,
                              uint8_t *room) {
  lowBitRows(words, weights, directions, copy, room);
}
