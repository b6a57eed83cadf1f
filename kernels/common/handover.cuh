// Handover: sums that one block leaves in global memory, and a later block of the same launch takes
// (sm_70).
//
// Two counts go up by one with every launch, how often the sums were left and how often taken, and
// nobody sets them back. Who takes them waits until they were left once more than taken. Why that
// is right,
//
//   for launches one after the other
//       Between them the counts are equal; no launch is told its number, so the replays of a CUDA
//       graph, whose arguments do not change, are as right as any other launch.
//   for launches that overlap
//       Waiting ends: a count that was taken t times is waited for until it is left t + 1 times, by
//       as many launches as have begun to take; blocks begin in their order, so the earlier block
//       of each is under way, and waits for none but still earlier ones.
//       What is taken is right only where all of these hold: the launches multiply the same
//       operands, hence leave the same bits; the sums lie in memory of their own, which one block
//       stores and those who take only read (wgmma_stream_k, stream). At least one launch has left
//       them then: those that ended before are in both counts.
//
// Where those who take add to the sums, as union_rows to C itself and union_half to its workspace,
// a launch that begins stores over what the one before has added to, or is added to by it: such
// launches must not overlap. Neither must launches of other operands, of any kernel: one would take
// the other's sums. Who brings them on several streams orders them.
//
// Several may take the same sums: they are left as many times at once.
//
// Differences are looked at, so that counts may wrap after 2^32 launches.
#pragma once

#include "hang_trap.cuh"

struct Handover {
    unsigned left, taken;  // both 0, or any two equal numbers, before the first launch
};

// What this thread wrote before, and what it knows of others by a barrier, is there for whoever
// awaits it.
__device__ __forceinline__ void leave(Handover* sums, unsigned takers = 1)
{
    asm volatile(
        "red.release.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(&sums->left)),
        "r"(takers)
        : "memory");
}

// Waits until the sums are there. Any threads may wait, and one of them says `take` when all have
// done so.
__device__ __forceinline__ void await(const Handover* sums CALLER)
{
    unsigned left, taken;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(taken) : "l"(&sums->taken) : "memory");
    Turns turns;
    do {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(left) : "l"(&sums->left) : "memory");
        turns.count(16 OF_CALLER);
    } while ((int)(left - taken) <= 0);
}

__device__ __forceinline__ void take(Handover* sums)
{
    asm volatile(
        "red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(&sums->taken))
        : "memory");
}

// The same by one who awaited them and changed them; returns whether all others have: then what
// they wrote is there, too.
__device__ __forceinline__ bool take_last(Handover* sums)
{
    unsigned before, left;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(left) : "l"(&sums->left) : "memory");
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(&sums->taken))
                 : "memory");
    return before + 1 == left;
}
