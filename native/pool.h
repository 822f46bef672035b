// Threads that live from open to close. Nothing here is static: a pool whose destructor ran at process exit would
// wait for threads that the exit has already stopped.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

// A counter that threads wait on: a short spin, because the next op is often microseconds away, then sleep.
class Gate {
public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void set(uint32_t value);
  void waitWhile(uint32_t old, int64_t spinNs);

private:
  std::atomic<uint32_t> value_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

class Pool {
public:
  typedef void (*Task)(void *context, int thread);

  // Starts threads - 1 workers; the caller of `run` is thread 0. Throws std::system_error.
  Pool(int threads, int64_t spinNs);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  int threads() const { return threads_; }
  // Runs task on every thread and returns when all are done. One caller at a time.
  void run(Task task, void *context);
  // Returns when every thread of the running task has called it.
  void barrier();

private:
  void work(int thread);
  void stop();

  const int threads_;
  const int64_t spinNs_;
  Gate started_;
  Gate phase_;
  Gate finished_;
  std::atomic<int> arrived_{0};
  std::atomic<int> running_{0};
  Task task_ = nullptr; // null tells the workers to end
  void *context_ = nullptr;
  std::vector<std::thread> workers_;
};
