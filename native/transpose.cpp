// Matrices turned while they are read from their file: a thread takes bands of rows that its cache holds.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>

#include "api.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum : size_t {
  bandBytes = (size_t)2 << 20,
  // A square of so many elements a side: its lines of both matrices stay in the first-level cache.
  tileSide = 64,
};

#if defined(__x86_64__)
// Eight by eight elements of 16 bits; strides in elements.
static void turnSquare(const uint16_t *from, size_t fromStride, uint16_t *to, size_t toStride) {
  __m128i a[8], b[8];
  for (int i = 0; i < 8; i++) a[i] = _mm_loadu_si128((const __m128i *)(from + i * fromStride));
  for (int i = 0; i < 4; i++) {
    b[2 * i] = _mm_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      a[4 * i + 2 * j] = _mm_unpacklo_epi32(b[4 * i + j], b[4 * i + 2 + j]);
      a[4 * i + 2 * j + 1] = _mm_unpackhi_epi32(b[4 * i + j], b[4 * i + 2 + j]);
    }
  for (int j = 0; j < 4; j++) {
    _mm_storeu_si128((__m128i *)(to + (2 * j) * toStride), _mm_unpacklo_epi64(a[j], a[4 + j]));
    _mm_storeu_si128((__m128i *)(to + (2 * j + 1) * toStride), _mm_unpackhi_epi64(a[j], a[4 + j]));
  }
}
#else
static void turnSquare(const uint16_t *from, size_t fromStride, uint16_t *to, size_t toStride) {
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) to[j * toStride + i] = from[i * fromStride + j];
}
#endif
static void turnSquare(const uint32_t *from, size_t fromStride, uint32_t *to, size_t toStride) {
  for (int j = 0; j < 8; j++)
    for (int i = 0; i < 8; i++) to[j * toStride + i] = from[i * fromStride + j];
}

// [rows, columns] at `from` to [columns, toStride] at `to`.
template <class Element>
static void turn(const Element *from, size_t rows, size_t columns, Element *to, size_t toStride) {
  for (size_t column = 0; column < columns; column += tileSide)
    for (size_t row = 0; row < rows; row += tileSide) {
      const size_t rowEnd = std::min(rows, row + tileSide), columnEnd = std::min(columns, column + tileSide);
      const size_t rowSquares = row + (rowEnd - row) / 8 * 8, columnSquares = column + (columnEnd - column) / 8 * 8;
      for (size_t j = column; j < columnSquares; j += 8)
        for (size_t i = row; i < rowSquares; i += 8) turnSquare(from + i * columns + j, columns, to + j * toStride + i, toStride);
      for (size_t j = column; j < columnEnd; j++)
        for (size_t i = j < columnSquares ? rowSquares : row; i < rowEnd; i++) to[j * toStride + i] = from[i * columns + j];
    }
}

int wb_read_transposed(int descriptor, const double *words, void *target, double *failure) {
  const off_t position = (off_t)words[0];
  const size_t rows = (size_t)words[1], columns = (size_t)words[2], elementBytes = (size_t)words[3];
  const size_t first = (size_t)words[4], last = (size_t)words[5], rowBytes = columns * elementBytes;
  const size_t atOnce = std::max((size_t)8, bandBytes / std::max((size_t)1, rowBytes) / 8 * 8);
  std::unique_ptr<char[]> band(new (std::nothrow) char[std::min(atOnce, last - first) * rowBytes + 1]);
  if (!band) return -1;
  for (size_t row = first; row < last; row += atOnce) {
    const size_t count = std::min(atOnce, last - row), length = count * rowBytes;
    for (size_t done = 0; done < length;) {
      const ssize_t got = pread(descriptor, band.get() + done, length - done, position + (off_t)(row * rowBytes + done));
      if (got < 0 && errno == EINTR) continue;
      failure[0] = got < 0 ? (double)errno : (double)(row * rowBytes + done);
      if (got < 0) return 2;
      if (got == 0) return 1;
      done += (size_t)got;
    }
    if (elementBytes == 2) turn((const uint16_t *)band.get(), count, columns, (uint16_t *)target + row, rows);
    else turn((const uint32_t *)band.get(), count, columns, (uint32_t *)target + row, rows);
  }
  return 0;
}
