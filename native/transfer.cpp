// File regions into memory: hint everything that comes next, then read; several readers share the list.
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "handle.h"

struct Region {
  int descriptor;
  off_t position;
  char *address;
  size_t length;
  size_t index; // of the caller's region
};

// Adjacent regions of one file, read by one call.
struct Run {
  size_t first, count;
  size_t bytes;
};

enum : size_t {
  runBytes = (size_t)1 << 20,
  runRegions = 64,
  // Enough for a disk's queue, small beside any budget: hinted pages are page cache, which a memory limit counts.
  hintedBytes = (size_t)16 << 20,
};

static void hint(int descriptor, off_t position, size_t length) {
#if defined(__linux__)
  posix_fadvise(descriptor, position, (off_t)length, POSIX_FADV_WILLNEED);
#elif defined(__APPLE__)
  for (; length > 0;) {
    const size_t part = std::min(length, (size_t)1 << 30);
    struct radvisory advice = {position, (int)part};
    fcntl(descriptor, F_RDADVISE, &advice);
    position += (off_t)part;
    length -= part;
  }
#else
  (void)descriptor, (void)position, (void)length;
#endif
}

void wb_prefetch(int descriptor, const double *regions, size_t count) {
  for (size_t i = 0; i < count; i++) hint(descriptor, (off_t)regions[2 * i], (size_t)regions[2 * i + 1]);
}

int wb_evict(int descriptor) {
#if defined(__linux__)
  fdatasync(descriptor);
  return posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
#else
  (void)descriptor;
  return ENOTSUP;
#endif
}

struct Reading {
  std::vector<Region> regions;
  std::vector<Run> runs;
  std::atomic<size_t> next{0};
  std::atomic<size_t> hinted{0};
  std::mutex mutex;
  int failed = 0; // as wb_transfer returns it
  size_t failedRegion = 0;
  double failedFigure = 0;
};

static void fail(Reading *reading, int kind, size_t region, double figure) {
  std::lock_guard<std::mutex> lock(reading->mutex);
  if (reading->failed && reading->failedRegion <= region) return;
  reading->failed = kind;
  reading->failedRegion = region;
  reading->failedFigure = figure;
}

static void readRun(Reading *reading, const Run &run) {
  struct iovec parts[runRegions];
  const Region *region = &reading->regions[run.first];
  size_t done = 0;
  while (done < run.bytes) {
    int count = 0;
    size_t skip = done, index = 0;
    while (skip >= region[index].length) skip -= region[index++].length;
    const size_t failing = index, readOfIt = skip;
    for (; index < run.count; index++, skip = 0)
      parts[count++] = {region[index].address + skip, region[index].length - skip};
    const ssize_t got = preadv(region[0].descriptor, parts, count, region[0].position + (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(reading, 2, region[failing].index, errno);
    if (got == 0) return fail(reading, 1, region[failing].index, (double)readOfIt);
    done += (size_t)got;
  }
}

// Keeps about `hintedBytes` hinted ahead of run `index`; whichever reader comes by does it.
static void hintAhead(Reading *reading, size_t index) {
  const size_t target = std::min(reading->runs.size(), index + hintedBytes / runBytes);
  size_t at = reading->hinted.load(std::memory_order_relaxed);
  while (at < target) {
    if (!reading->hinted.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
    const Run &run = reading->runs[at];
    const Region &first = reading->regions[run.first];
    hint(first.descriptor, first.position, run.bytes);
    at++;
  }
}

static void readThread(void *context, int) {
  Reading *reading = (Reading *)context;
  for (size_t index; (index = reading->next.fetch_add(1, std::memory_order_relaxed)) < reading->runs.size();) {
    hintAhead(reading, index + 1);
    readRun(reading, reading->runs[index]);
  }
}

static void planRuns(Reading *reading, const double *words, size_t count) {
  for (size_t i = 0; i < count; i++, words += 4) {
    Region region = {(int)words[0], (off_t)words[1], (char *)(uintptr_t)words[2], (size_t)words[3], i};
    while (region.length > 0) {
      Region part = region;
      part.length = std::min(region.length, (size_t)runBytes);
      Run *last = reading->runs.empty() ? nullptr : &reading->runs.back();
      const Region *before = last ? &reading->regions.back() : nullptr;
      if (last && before->descriptor == part.descriptor && before->position + (off_t)before->length == part.position &&
          last->count < runRegions && last->bytes + part.length <= runBytes) {
        last->count++;
        last->bytes += part.length;
      } else {
        reading->runs.push_back({reading->regions.size(), 1, part.length});
      }
      reading->regions.push_back(part);
      region.position += (off_t)part.length;
      region.address += part.length;
      region.length -= part.length;
    }
  }
}

int wb_transfer(void *pointer, const double *regions, size_t count, double *failure) {
  Handle *handle = (Handle *)pointer;
  Reading reading;
  try {
    planRuns(&reading, regions, count);
  } catch (const std::bad_alloc &) {
    return -1;
  }
  size_t scattered = 0;
  // Scattered rows are small: all of them may be on their way before the first is read.
  for (size_t bytes = 0; scattered < reading.runs.size() && bytes < hintedBytes; scattered++)
    bytes += reading.runs[scattered].bytes;
  for (size_t i = 0; i < scattered; i++) {
    const Region &first = reading.regions[reading.runs[i].first];
    hint(first.descriptor, first.position, reading.runs[i].bytes);
  }
  reading.hinted.store(scattered, std::memory_order_relaxed);
  if (reading.runs.size() > 1) handle->readers.run(readThread, &reading);
  else readThread(&reading, 0);
  if (!reading.failed) return 0;
  failure[0] = (double)reading.failedRegion;
  failure[1] = reading.failedFigure;
  return reading.failed;
}
