// The plain C interface; src/backend/cpu/native-library.ts declares the same signatures.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define WB_API extern "C" __attribute__((visibility("default")))

// Raised with every change of a signature or of the program's words.
enum { wbInterfaceVersion = 1 };

WB_API int wb_interface_version();
// Bit 0 baseline, bit 1 AVX2 + F16C, bit 2 AVX-512 (F, BW, DQ, VL): compiled in and present.
WB_API int wb_instruction_sets();

// Starts the threads; null where the system refuses. `set` is an instruction set that `wb_instruction_sets` has.
WB_API void *wb_open(int threads, int set, int readers);
WB_API void wb_close(void *handle);

// Runs a program; one call at a time. 0, or (op index + 1) * 256 + FailureCode, or -1 without memory.
WB_API int64_t wb_submit(void *handle, const double *program, size_t ops);

// Zeroed, aligned to 64; null where the memory cannot be had.
WB_API void *wb_allocate(size_t byteLength);
WB_API void wb_release(void *address, size_t byteLength);
WB_API void wb_copy(void *to, const void *from, size_t byteLength);

// Regions are [count, 4] numbers: descriptor, position, address, length. One call at a time. Returns 0; or 1 with
// failure = (region, bytes read) where the file ends early; or 2 with failure = (region, errno); or -1 without memory.
WB_API int wb_transfer(void *handle, const double *regions, size_t count, double *failure);
// Regions are [count, 2] numbers: position, length.
WB_API void wb_prefetch(int descriptor, const double *regions, size_t count);
// Reads rows of a matrix of elements of 2 or 4 bytes and writes them as columns of `target`, the whole of it transposed. Words:
// position of the matrix in the file, rows, columns, bytes of an element, first row, row behind the last one; several
// calls may write different rows at once. Returns 0; or 1 with failure = bytes read where the file ends early; or 2 with
// failure = errno; or -1 without memory.
WB_API int wb_read_transposed(int descriptor, const double *words, void *target, double *failure);
// Drops the file's clean pages from the page cache: for cold measurements. 0 or an errno; ENOTSUP off Linux.
WB_API int wb_evict(int descriptor);

// Makes rows of a low-bit copy from stored weights (native/low-bit-writer.h says which words); several calls may write
// different rows at once. `set` is one that `wb_instruction_sets` has. 0, or -1 without memory.
WB_API int wb_low_bit_rows(int set, const double *words, const void *weights, const int16_t *directions, void *copy);

// Reads `count` floats with all threads: the read ceiling of the benchmarks. `count` is a multiple of 65,536.
WB_API double wb_sum(void *handle, const float *from, size_t count);
