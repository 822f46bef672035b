#include "pool.h"

#include <chrono>

#include "relax.h"

static int64_t nowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Gate::set(uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  // Taking the lock puts the notification behind a sleeper's own check of the value.
  { std::lock_guard<std::mutex> lock(mutex_); }
  wake_.notify_all();
}

void Gate::waitWhile(uint32_t old, int64_t spinNs) {
  if (spinNs > 0) {
    const int64_t end = nowNs() + spinNs;
    do {
      for (int i = 0; i < 64; i++) {
        if (value() != old) return;
        relax();
      }
    } while (nowNs() < end);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old) wake_.wait(lock);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

Pool::Pool(int threads, int64_t spinNs) : threads_(threads), spinNs_(spinNs) {
  try {
    workers_.reserve((size_t)threads - 1);
    for (int thread = 1; thread < threads; thread++) workers_.emplace_back([this, thread] { work(thread); });
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  task_ = nullptr;
  started_.set(started_.value() + 1);
  for (std::thread &worker : workers_) worker.join();
  workers_.clear();
}

void Pool::work(int thread) {
  // Counts from 0 and not from what the gate holds now: the first job may be there already.
  for (uint32_t seen = 0;;) {
    started_.waitWhile(seen, spinNs_);
    seen++;
    if (!task_) return;
    task_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.set(finished_.value() + 1);
  }
}

void Pool::run(Task task, void *context) {
  if (threads_ == 1) return task(context, 0);
  const uint32_t before = finished_.value();
  task_ = task;
  context_ = context;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  started_.set(started_.value() + 1);
  task(context, 0);
  finished_.waitWhile(before, spinNs_);
}

void Pool::barrier() {
  if (threads_ == 1) return;
  const uint32_t phase = phase_.value();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.set(phase + 1);
    return;
  }
  phase_.waitWhile(phase, spinNs_);
}
