#include "api.h"

#include <stdlib.h>

#include <exception>
#include <memory>
#include <new>

#include "cpu.h"
#include "handle.h"

int wb_interface_version() { return wbInterfaceVersion; }

int wb_instruction_sets() { return instructionSets(); }

static RunJob runnerOf(int set) {
#if defined(__x86_64__) && !defined(WAYBILL_PLAIN_VECTORS)
  if (set == setAvx2) return waybill_run_avx2;
  if (set == setAvx512) return waybill_run_avx512;
#endif
  return set == setBaseline ? waybill_run_baseline : nullptr;
}

static SumFloats summerOf(int set) {
#if defined(__x86_64__) && !defined(WAYBILL_PLAIN_VECTORS)
  if (set == setAvx2) return waybill_sum_avx2;
  if (set == setAvx512) return waybill_sum_avx512;
#endif
  return waybill_sum_baseline;
}

void *wb_open(int threads, int set, int readers) {
  if (threads < 1 || readers < 1 || set < 0 || set > setAvx512 || !(instructionSets() >> set & 1)) return nullptr;
  try {
    std::unique_ptr<Handle> handle(new Handle(threads, readers));
    handle->run = runnerOf(set);
    handle->sum = summerOf(set);
    handle->scratch = (float *)wb_allocate((size_t)threads * scratchFloats * sizeof(float));
    return handle->scratch ? handle.release() : nullptr;
  } catch (const std::exception &) {
    return nullptr;
  }
}

void wb_close(void *pointer) { delete (Handle *)pointer; }

struct Submission {
  Handle *handle;
  Job job;
};

static void runThread(void *context, int thread) {
  Submission *submission = (Submission *)context;
  submission->handle->run(&submission->job, thread, submission->handle->scratch + (size_t)thread * scratchFloats);
}

static void waitForAll(void *barrier, int) { ((Pool *)barrier)->barrier(); }

static size_t widestCompact(const double *program, size_t ops) {
  size_t widest = 0;
  for (size_t index = 0; index < ops; index++) {
    const double *words = program + index * wordsPerOp;
    if (words[0] == opCompact && (size_t)words[2] > widest) widest = (size_t)words[2];
  }
  return widest;
}

int64_t wb_submit(void *pointer, const double *program, size_t ops) {
  Handle *handle = (Handle *)pointer;
  try {
    handle->counters.assign(2 * ops, 0);
    const size_t widest = widestCompact(program, ops);
    if (handle->marks.size() < widest) handle->marks.resize(widest);
    if (handle->counts.size() < widest / compactColumns + 1) handle->counts.resize(widest / compactColumns + 1);
  } catch (const std::bad_alloc &) {
    return -1;
  }
  int64_t status = 0;
  Submission submission = {handle, {}};
  Job &job = submission.job;
  job.program = program;
  job.ops = ops;
  job.threads = handle->pool.threads();
  job.counters = handle->counters.data();
  job.marks = handle->marks.data();
  job.counts = handle->counts.data();
  job.status = &status;
  job.wait = waitForAll;
  job.barrier = &handle->pool;
  handle->pool.run(runThread, &submission);
  return status;
}

static LowBitRows lowBitWriterOf(int set) {
#if defined(__x86_64__) && !defined(WAYBILL_PLAIN_VECTORS)
  if (set == setAvx2) return waybill_low_bit_rows_avx2;
  if (set == setAvx512) return waybill_low_bit_rows_avx512;
#endif
  return waybill_low_bit_rows_baseline;
}

int wb_low_bit_rows(int set, const double *words, const void *weights, const int16_t *directions, void *copy) {
  const size_t byteLength = waybill_low_bit_room_baseline((size_t)words[0], (size_t)words[3]);
  void *room = wb_allocate(byteLength);
  if (!room) return -1;
  lowBitWriterOf(set)(words, weights, directions, (uint8_t *)copy, (uint8_t *)room);
  wb_release(room, byteLength);
  return 0;
}

struct Summation {
  Handle *handle;
  const float *from;
  size_t chunks;
  std::atomic<size_t> next;
  float *sums; // one a thread, a cache line apart
};

enum { sumChunkFloats = 1 << 16, sumStride = 16 };

static void sumThread(void *context, int thread) {
  Summation *work = (Summation *)context;
  float total = 0;
  for (size_t chunk; (chunk = work->next.fetch_add(1, std::memory_order_relaxed)) < work->chunks;) {
    float sum;
    work->handle->sum(work->from + chunk * sumChunkFloats, sumChunkFloats, &sum);
    total += sum;
  }
  work->sums[(size_t)thread * sumStride] = total;
}

double wb_sum(void *pointer, const float *from, size_t count) {
  Handle *handle = (Handle *)pointer;
  Summation work = {handle, from, count / sumChunkFloats, {0}, handle->scratch};
  handle->pool.run(sumThread, &work);
  double total = 0;
  for (int thread = 0; thread < handle->pool.threads(); thread++) total += work.sums[(size_t)thread * sumStride];
  return total;
}
