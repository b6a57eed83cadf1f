// A ring of stages that some warps fill and warpgroups multiply: its barriers, and the loop of
// those that multiply (sm_90a).
//
//   producers     wait empty[s] ── copy ──► full[s]
//   warpgroups    wait full[s] ── wgmma ──► empty[s]
//                 handed back when the wgmma of the step after has been issued
#pragma once

#include "mbarrier.cuh"
#include "wgmma.cuh"

// One thread makes the barriers. fills: arrivals that make a stage full; hand_backs: those that
// make it empty.
template <int STAGES>
__device__ __forceinline__ void ring_init(Barrier* full, Barrier* empty, int fills, int hand_backs)
{
    for (int s = 0; s < STAGES; ++s)
        barrier_init(&full[s], fills), barrier_init(&empty[s], hand_backs);
    barrier_init_fence();
}

// The same where the producer is a warp of its own, the one after GROUPS warpgroups that multiply:
// it makes the barriers and goes on, and the warpgroups wait until they are there. Its first copies
// need not wait for anybody. prefetch(): what its first thread does before. Takes the named barrier
// 1 + GROUPS.
template <int GROUPS, int STAGES, class Prefetch>
__device__ __forceinline__ void
ring_begin(Barrier* full, Barrier* empty, int fills, int hand_backs, Prefetch prefetch)
{
    constexpr int NUMBER = 1 + GROUPS, ALL = 32 + 128 * GROUPS;
    if (threadIdx.x < 128 * GROUPS) {
        named_barrier(NUMBER, ALL);
    } else if (threadIdx.x < ALL) {
        if (threadIdx.x == 128 * GROUPS) {
            prefetch();
            ring_init<STAGES>(full, empty, fills, hand_backs);
        }
        __syncwarp();
        named_barrier_arrive(NUMBER, ALL);
    }
}

// A warpgroup multiplies steps first to end - 1, one group of wgmma always under way while the next
// is issued. multiply(set, stage, add): issues and commits the wgmma of a stage; add: to the
// accumulators, which begin with zero otherwise. hand_back(stage): it has been read.
//
// Template:  SETS    registers that wgmma reads (metadata, A) come in so many sets, which take
//                    turns: those of the step before are still being read. 1 where there are none,
//                    2 otherwise
//            PEELED  whether the first step, of at least one, stands before the loop: `add` is then
//                    known when compiling
template <int SETS, bool PEELED, int STAGES, class Accumulators, class Multiply, class HandBack>
__device__ __forceinline__ void consume(Accumulators& acc, Place<STAGES>& at, int first, int end,
                                        Barrier* full, Multiply multiply, HandBack hand_back)
{
    int before = -1;
    if (PEELED) {
        wait(&full[at.stage], at.parity);
        multiply(0, at.stage, false);
        before = at.stage;
        at.next();
    }
    for (int step = first + PEELED; step < end; step += SETS)
#pragma unroll
        for (int i = 0; i < SETS; ++i) {
            if (i > 0 && step + i == end) break;
            wait(&full[at.stage], at.parity);
            multiply((PEELED + i) % SETS, at.stage, PEELED || step + i > first);
            wgmma_wait<1>();
            if (PEELED || before >= 0) hand_back(before);
            before = at.stage;
            at.next();
        }
    wgmma_wait<0>();
    settle(acc);
    hand_back(before);
}
