// Walks the program: every thread takes its share of each op, a barrier stands between ops. Included inside the
// anonymous namespace of a unit.
#pragma once

static int runOp(const Job *job, size_t index, int thread, Scratch s) {
  const double *w = job->program + index * wordsPerOp;
  uint32_t *counter = job->counters + 2 * index;
  const int threads = job->threads;
  switch ((int)w[0]) {
  case opGather: return gather(w, counter) ? 0 : failureIndexOutOfRange;
  case opLinear: linear(w, counter, threads, s); return 0;
  case opQuantisedLinear: quantisedLinear(w, counter, threads, s); return 0;
  case opCompact: compact(job, w, counter, thread); return 0;
  case opActiveInputs: activeInputs(w, counter, threads, s); return 0;
  case opActiveOutputs: activeOutputs(w, counter, threads, s); return 0;
  case opActivate: return activate(w, counter) ? 0 : failureUnknownOp;
  case opGatedProduct: gatedProduct(w, counter); return 0;
  case opAdd: add(w, counter); return 0;
  case opNorm: norm(w, counter); return 0;
  case opRope: rope(w, counter); return 0;
  case opStoreKv: return storeKv(w, counter, s) ? 0 : failureKvOverflow;
  case opAttention: attention(w, counter, thread, s); return 0;
  case opRoundInput: roundInput(w, counter); return 0;
  case opCertify: certify(w, counter, s); return 0;
  default: return failureUnknownOp;
  }
}

static void runProgram(const Job *job, int thread, float *scratch) {
  const Scratch s = scratchOf(scratch);
  for (size_t index = 0; index < job->ops; index++) {
    const int failure = runOp(job, index, thread, s);
    if (failure) {
      int64_t none = 0;
      __atomic_compare_exchange_n(job->status, &none, (int64_t)(index + 1) * 256 + failure, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED);
    }
    job->wait(job->barrier, thread);
    // A faster thread may already have failed in a later op: stop only where all threads stop.
    const int64_t status = __atomic_load_n(job->status, __ATOMIC_RELAXED);
    if (status != 0 && (size_t)(status / 256) <= index + 1) return;
  }
}

// The read ceiling of benchmarks: nothing but loads and the adds that keep them.
static void sumFloats(const float *from, size_t count, float *sum) {
  F acc[8];
  for (int v = 0; v < 8; v++) acc[v] = zero();
  for (size_t i = 0; i + 8 * lanes <= count; i += 8 * lanes)
    for (int v = 0; v < 8; v++) acc[v] = acc[v] + load(from + i + v * lanes);
  for (int v = 1; v < 8; v++) acc[0] = acc[0] + acc[v];
  float lane[lanes];
  store(lane, acc[0]);
  *sum = 0.0f;
  for (int l = 0; l < lanes; l++) *sum += lane[l];
}
