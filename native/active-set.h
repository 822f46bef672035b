// compact: marks and counts by chunks of columns, then every chunk writes behind the counts of those before it.
// Included inside the anonymous namespace of a unit.
#pragma once

static void compact(const Job *job, const double *w, uint32_t *counters, int thread) {
  const size_t rows = (size_t)w[1], width = (size_t)w[2];
  const float *x = pointerAt<const float>(w[3]);
  uint32_t *active = pointerAt<uint32_t>(w[4]);
  for (size_t chunk; (chunk = takeItem(&counters[0])) * compactColumns < width;) {
    const size_t from = chunk * compactColumns, to = least(from + compactColumns, width);
    uint32_t *marks = job->marks + from;
    __builtin_memset(marks, 0, (to - from) * sizeof(uint32_t));
    for (size_t t = 0; t < rows; t++) {
      const float *row = x + t * width + from;
      for (size_t c = 0; c < to - from; c++) marks[c] |= row[c] != 0.0f;
    }
    uint32_t count = 0;
    for (size_t c = 0; c < to - from; c++) count += marks[c];
    job->counts[chunk] = count;
  }
  job->wait(job->barrier, thread);
  for (size_t chunk; (chunk = takeItem(&counters[1])) * compactColumns < width;) {
    const size_t from = chunk * compactColumns, to = least(from + compactColumns, width);
    size_t at = 1;
    for (size_t before = 0; before < chunk; before++) at += job->counts[before];
    for (size_t c = from; c < to; c++)
      if (job->marks[c]) active[at++] = (uint32_t)c;
    if (to == width) active[0] = (uint32_t)(at - 1);
  }
  if (width == 0 && thread == 0) active[0] = 0;
}
