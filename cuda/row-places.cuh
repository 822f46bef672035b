// Where the row of a neuron lies, for products that read it there: a word a neuron, and what the word says.
#pragma once
#include "numbers.cuh"

constexpr u32 freshPlace = 0x80000000u; // src/backend/row-index.ts

// Every row lies by neuron. The answers are constants, so that no word is read or kept.
template <class E> struct RowsByNeuron {
  typedef typename E::Stored Stored;
  static constexpr bool keeps = false;
  __device__ __forceinline__ u32 word(u32) const { return 0; }
  __device__ __forceinline__ bool lies(u32) const { return false; }
  __device__ __forceinline__ bool fresh(u32) const { return false; }
  __device__ __forceinline__ Stored *place(u32, int) const { return nullptr; }
};

// Rows with a place lie there, unless they have just got it: then they are read by neuron and kept in their place on the way.
template <class E> struct RowsInPlaces {
  typedef typename E::Stored Stored;
  static constexpr bool keeps = true;
  const u32 *placeOf;
  Stored *held; // row = place
  i64 rowStride;
  __device__ __forceinline__ u32 word(u32 neuron) const { return placeOf[neuron]; }
  __device__ __forceinline__ bool lies(u32 word) const { return word != 0 && (word & freshPlace) == 0; }
  __device__ __forceinline__ bool fresh(u32 word) const { return (word & freshPlace) != 0; }
  __device__ __forceinline__ Stored *place(u32 word, int column) const {
    return held + (i64)((word & ~freshPlace) - 1) * rowStride + column;
  }
};
