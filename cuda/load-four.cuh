// Guarded loads of four elements, for tiles whose edges need not be multiples of four.
#pragma once
#include "numbers.cuh"

// Four stored elements, of which the first `count` are read; the others are zero.
template <class E> __device__ __forceinline__ Packed<E, 4> loadFour(const typename E::Stored *from, int count, bool aligned) {
  if (count >= 4 && aligned) return loadPacked<E, 4>(from);
  typename E::Stored one[4];
#pragma unroll
  for (int i = 0; i < 4; i++) one[i] = i < count ? from[i] : (typename E::Stored)0; // no bits is zero in every type
  Packed<E, 4> four;
  if constexpr (sizeof(typename E::Stored) == 4) four.a = make_float4(one[0], one[1], one[2], one[3]);
  else four.a = make_uint2((u32)one[0] | (u32)one[1] << 16, (u32)one[2] | (u32)one[3] << 16);
  return four;
}
