// cp.async: global memory to shared memory without passing through registers (sm_80 and later; SASS: LDGSTS).
#pragma once

// Copies 16 bytes between multiples of 16. `.cg`: cached in L2 only, since shared memory is the reuse.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global)
{
    const unsigned dst = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(global) : "memory");
}

// Waits for all copies of this thread; a __syncthreads() then shows them to the block.
__device__ __forceinline__ void cp_async_wait_all()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}
