// Kernels that every processor of the platform runs. WAYBILL_PLAIN_VECTORS lets an x86-64 compiler test the unit of arm64.
#include "job.h"

#if defined(__x86_64__) && !defined(WAYBILL_PLAIN_VECTORS)
#include <immintrin.h>
#endif

namespace {
#include "numbers.h"
#if defined(__x86_64__) && !defined(WAYBILL_PLAIN_VECTORS)
#include "vector-sse2.h"
#else
#include "vector-plain.h"
#endif
#include "kernels.h"
} // namespace

void waybill_run_baseline(const Job *job, int thread, float *scratch) { runProgram(job, thread, scratch); }
void waybill_sum_baseline(const float *from, size_t count, float *sum) { sumFloats(from, count, sum); }
void waybill_low_bit_rows_baseline(const double *words, const void *weights, const int16_t *directions, uint8_t *copy,
                              uint8_t *room) {
  lowBitRows(words, weights, directions, copy, room);
}
size_t waybill_low_bit_room_baseline(size_t inputs, size_t directions) { return lowBitRoomBytes(inputs, directions); }
