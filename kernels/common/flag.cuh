// Flags in global memory between blocks that run at the same time: one says that what it wrote is there, one waits for it.
#pragma once

// What this thread wrote before, and what it knows of others by a barrier, is visible to whoever acquires the flag.
__device__ __forceinline__ void release(unsigned* flag)
{
    asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(flag) : "memory");
}

// Waits until it is released. Who clears it must know that all have seen it.
__device__ __forceinline__ void acquire(const unsigned* flag)
{
    unsigned set = 0;
    while (!set) asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
}
