// Clusters of blocks of threads (9.0 and later): their barrier, and stores to one another's shared memory.
#pragma once
#include "numbers.cuh"

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void clusterArrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void clusterWait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ u32 clusterRank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ u32 clusterSize() {
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
__device__ __forceinline__ u32 clusterIndex() {
  u32 index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ u32 sharedAddress(const void *local) {
  u32 address;
  asm("{ .reg .u64 shared; cvta.to.shared.u64 shared, %1; cvt.u32.u64 %0, shared; }" : "=r"(address) : "l"(local));
  return address;
}
// To the place of `local` in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ void storeRemote(float *local, u32 rank, float value) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(sharedAddress(local)), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}
#endif

// A block of threads among those of its cluster, which share the inputs of its columns.
struct ClusterPlace {
  int ranks, rank;
  int group; // of columns
};

// Blocks of threads of the cluster may be written to behind `clusterWait`. One of a cluster of its own waits for none.
__device__ __forceinline__ ClusterPlace joinCluster(int ranks) {
#if __CUDA_ARCH__ >= 900
  if (ranks > 1) {
    clusterArrive();
    return ClusterPlace{ranks, (int)clusterRank(), (int)clusterIndex()};
  }
#endif
  return ClusterPlace{1, 0, (int)blockIdx.x};
}
