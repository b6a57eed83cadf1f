// TMA: the copy engine moves boxes of a tensor between global and shared memory (sm_90; SASS:
// UTMALDG, UTMASTG, UBLKCP).
//
// One thread asks, nobody waits: a load reports to an mbarrier, a store to the group that the
// asking thread commits. What lies beyond the tensor's edges reads as zero and is not written.
#pragma once

#include "mbarrier.cuh"

struct alignas(64)
    TensorMap {  // CUtensorMap: address, sizes, strides, box and swizzle, encoded by the driver
    unsigned long long opaque[16];
};

__device__ __forceinline__ void tma_prefetch(const TensorMap& map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// What L2 shall do with what passes through it: keep it as long as it can, or let it go first.
using Policy = unsigned long long;
__device__ __forceinline__ Policy keep()
{
    Policy policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ Policy let_go()
{
    Policy policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Loads the box whose first element is column x, row y.
__device__ __forceinline__ void
tma_load(void* shared, const TensorMap& map, int x, int y, Barrier* bar)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
            "r"(shared_address(shared)),
        "l"(&map), "r"(x), "r"(y), "r"(shared_address(bar))
        : "memory");
}
__device__ __forceinline__ void
tma_load(void* shared, const TensorMap& map, int x, int y, Barrier* bar, Policy policy)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(shared)),
        "l"(&map), "r"(x), "r"(y), "r"(shared_address(bar)), "l"(policy)
        : "memory");
}

// Loads bytes that lie side by side, 16 or a multiple of it: no tensor, no swizzle.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, int bytes, Barrier* bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(bar))
        : "memory");
}
__device__ __forceinline__ void
bulk_load(void* shared, const void* global, int bytes, Barrier* bar, Policy policy)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(bar)), "l"(policy)
        : "memory");
}

// Loads a box into every block of the cluster whose bit is set: the same place and the same barrier
// in each.
__device__ __forceinline__ void tma_multicast(void* shared, const TensorMap& map, int x, int y,
                                              Barrier* bar, unsigned short blocks, Policy policy)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
        " [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(shared_address(shared)),
        "l"(&map), "r"(x), "r"(y), "r"(shared_address(bar)), "h"(blocks), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, int x, int y, const void* shared)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
        "r"(x), "r"(y), "r"(shared_address(shared))
        : "memory");
}

__device__ __forceinline__ void
tma_store(const TensorMap& map, int x, int y, const void* shared, Policy policy)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::
            "l"(&map),
        "r"(x), "r"(y), "r"(shared_address(shared)), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most PENDING groups of this thread's stores have not read their shared memory,
// which may then be written.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Shows this thread's ordinary writes of shared memory to the copy engine and the tensor cores.
__device__ __forceinline__ void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
