// mbarrier: a barrier in shared memory that also counts bytes which the copy engine delivers
// (sm_90; SASS: SYNCS).
//
// A phase ends when `count` arrivals have been made and as many bytes have landed as were
// announced. Who waits names the parity of the phase it waits for: 0 for the first, 1 for the
// second, 0 again for the third.
#pragma once

#include "hang_trap.cuh"

using Barrier = unsigned long long;

__device__ __forceinline__ unsigned shared_address(const void* p)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(Barrier* bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count)
                 : "memory");
}

// Shows initialised barriers to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void
arrive(unsigned bar)  // an address of shared memory, kept instead of computed again
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void arrive(Barrier* bar) { arrive(shared_address(bar)); }

// Arrives, and announces bytes that the copy engine will deliver in this phase.
__device__ __forceinline__ void arrive_expect(Barrier* bar, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
        "r"(bytes)
        : "memory");
}

// Arrives at the barrier of another block of the cluster. What it orders is what this block read:
// no more than a release within the block is needed, and one for the cluster would wait for every
// load in flight.
__device__ __forceinline__ void arrive_remote(Barrier* bar, unsigned block)
{
    asm volatile(
        "{ .reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(shared_address(bar)),
        "r"(block)
        : "memory");
}

// Waits until the phase of this parity has ended.
__device__ __forceinline__ void wait(unsigned bar, unsigned parity CALLER)
{
#ifdef HANG_TRAP
    Turns turns;
    for (unsigned done = 0; !done;
         turns.count(1 OF_CALLER))  // test_wait: a turn that does not sleep
        asm volatile(
            "{ .reg .pred done;\n"
            "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "selp.u32 %0, 1, 0, done; }"
            : "=r"(done)
            : "r"(bar), "r"(parity)
            : "memory");
#else
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(bar),
        "r"(parity)
        : "memory");
#endif
}
__device__ __forceinline__ void wait(Barrier* bar, unsigned parity CALLER)
{
    wait(shared_address(bar), parity OF_CALLER);
}

// A warp hands a buffer back: one arrival, when all its threads have read what they read there. One
// for several warps would order the reads of its own warp alone.
__device__ __forceinline__ void hand_back_warp(Barrier* empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
}

// A place in a ring of STAGES buffers: which one, and the parity of its current phase.
template <int STAGES>
struct Place {
    int stage = 0;
    unsigned parity = 0;
    __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};
