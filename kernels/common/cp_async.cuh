// cp.async: global memory to shared memory without passing through registers (sm_80 and later;
// SASS: LDGSTS).
#pragma once

// Copies 16 bytes between multiples of 16. `.cg`: cached in L2 only, since shared memory is the
// reuse.
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

// What a copy passes through: CG, L2 alone (SASS: .BYPASS), which only copies of 16 bytes can; CA,
// L1 as well.
enum CachePolicy { CG, CA };

// Copies BYTES between multiples of BYTES, to an address within shared memory as instructions count
// it (__cvta_generic_to_shared), and prefetches the 128 bytes around the source into L2. Nothing
// happens unless `run`, by a predicate of the instruction: a branch would keep the compiler from
// spreading copies among other work.
template <int BYTES, CachePolicy POLICY>
__device__ __forceinline__ void cp_async(unsigned shared, const void* global, bool run = true)
{
    static_assert(
        BYTES == 16 || (POLICY == CA && (BYTES == 8 || BYTES == 4)), "16 bytes, and by .ca 8 or 4");
    if constexpr (POLICY == CG)
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t"
            "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n\t}" ::"r"(shared),
            "l"(global), "r"((int)run)
            : "memory");
    else
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t"
            "@p cp.async.ca.shared.global.L2::128B [%0], [%1], %3;\n\t}" ::"r"(shared),
            "l"(global), "r"((int)run), "n"(BYTES)
            : "memory");
}

// The same where `inside`; elsewhere it reads nothing and writes zeros.
template <int BYTES, CachePolicy POLICY>
__device__ __forceinline__ void
cp_async_or_zeros(unsigned shared, const void* global, bool inside, bool run = true)
{
    static_assert(
        BYTES == 16 || (POLICY == CA && (BYTES == 8 || BYTES == 4)), "16 bytes, and by .ca 8 or 4");
    const int size = inside ? BYTES : 0;
    if constexpr (POLICY == CG)
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t"
            "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %3;\n\t}" ::"r"(shared),
            "l"(global), "r"((int)run), "r"(size)
            : "memory");
    else
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\t"
            "@p cp.async.ca.shared.global.L2::128B [%0], [%1], %4, %3;\n\t}" ::"r"(shared),
            "l"(global), "r"((int)run), "r"(size), "n"(BYTES)
            : "memory");
}

// Closes a group of copies, which may be empty, so that the groups of a pipeline can be counted.
__device__ __forceinline__ void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's latest groups are unfinished; a __syncthreads()
// shows the others.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
