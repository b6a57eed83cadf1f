// wgmma: a warpgroup (128 threads) multiplies 64 x k by k x N, asynchronously (sm_90a; SASS: HGMMA,
// HGMMA.SP).
//
// Accumulators, float d[N / 2] of a thread: warp w of the group holds rows 16 w to 16 w + 15, lane
// 4 g + t of it
//     d[4 j], d[4 j + 1]      row g,      columns 8 j + 2 t and + 1
//     d[4 j + 2], d[4 j + 3]  row g + 8,  the same columns
// A from registers, 4 of 32 bits (two values each), is laid out likewise: (g, 2t), (g + 8, 2t), (g,
// 2t + 8), (g + 8, 2t + 8). Sparse A is 64 x k/2 compressed; metadata is that of mma.sp, a word a
// lane for the 16 rows of its warp: with selector 0 lanes t = 0 and 1 of each four give it, with 1
// lanes 2 and 3 (formats/two_four.py, swizzle).
//
// A in shared memory is K-major: rows of k values. B of 16-bit types is MN_MAJOR, k rows of N
// columns, which the instruction transposes, or K_MAJOR, N rows of k values; B of TF32 is K_MAJOR
// alone.
#pragma once

#include "half.cuh"

// Registers are touched by wgmma behind the compiler's back: fence before the first after other
// accesses, commit a group of them, and wait until at most PENDING groups are unfinished.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// After the last wait: nothing that reads accumulators may be moved before this line by the
// compiler, which does not see that the instructions before it were writing them.
template <int BLOCKS, int REGISTERS>
__device__ __forceinline__ void settle(float (&acc)[BLOCKS][REGISTERS])
{
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int j = 0; j < REGISTERS; ++j) asm volatile("" : "+f"(acc[i][j])::"memory");
}

// The register file is split at launch into equal parts; a warpgroup may give some of its own back,
// another take them. Every warp of the warpgroup must get here.
template <int REGISTERS>
__device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// A barrier for some threads of the block, a multiple of 32; number 0 is __syncthreads'.
__device__ __forceinline__ void named_barrier(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Counts the calling warps in without holding them.
__device__ __forceinline__ void named_barrier_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Describes a matrix in shared memory, 128-byte swizzled: 8 rows of 128 bytes make an atom of 1024
// bytes, aligned likewise. stride: bytes from an atom to the next 8 rows; leading: bytes from 128
// bytes of columns to the next (MN-major only).
__device__ __forceinline__ unsigned long long
wgmma_matrix(const void* shared, int leading, int stride)
{
    const unsigned long long address = __cvta_generic_to_shared(shared);
    return (address & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

// The same for a K-major matrix of WIDTH bytes a row, 128, 64 or 32, swizzled over as many: an atom
// is 8 rows.
template <int WIDTH>
__device__ __forceinline__ unsigned long long k_major(const void* shared)
{
    constexpr unsigned long long swizzle = WIDTH == 128 ? 1 : WIDTH == 64 ? 2 : 3;
    const unsigned long long address = __cvta_generic_to_shared(shared);
    return (address & 0x3ffff) >> 4 | 1ull << 16 | (unsigned long long)(8 * WIDTH >> 4) << 32 |
           swizzle << 62;
}

#define WGMMA_O4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WGMMA_O8 WGMMA_O4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define WGMMA_D16(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), \
        "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define WGMMA_R4 "%0, %1, %2, %3"
#define WGMMA_R8 WGMMA_R4 ", %4, %5, %6, %7"
#define WGMMA_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_R32 \
    WGMMA_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_R48 \
    WGMMA_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_R64 \
    WGMMA_R48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_R80 \
    WGMMA_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_R96 \
    WGMMA_R80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_R112 \
    WGMMA_R96 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_R128 \
    WGMMA_R112 \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_O16 WGMMA_D16(0)
#define WGMMA_O32 WGMMA_O16, WGMMA_D16(16)
#define WGMMA_O48 WGMMA_O32, WGMMA_D16(32)
#define WGMMA_O64 WGMMA_O48, WGMMA_D16(48)
#define WGMMA_O80 WGMMA_O64, WGMMA_D16(64)
#define WGMMA_O96 WGMMA_O80, WGMMA_D16(80)
#define WGMMA_O112 WGMMA_O96, WGMMA_D16(96)
#define WGMMA_O128 WGMMA_O112, WGMMA_D16(112)

enum Major {
    K_MAJOR = 0,
    MN_MAJOR = 1
};  // what is contiguous: k or, of B, its columns; as the instruction counts

// m64nNk16, sparse A k32. d: accumulators; a, b: wgmma_matrix or, for sparse A, 4 registers; add: 0
// begins with zero.
template <int N, Dtype T, Major B = MN_MAJOR>
struct Wgmma;

// i0 to i8: numbers of the operands after the accumulators.
#define WGMMA_OF(N, HALF, T, TYPE, i0, i1, i2, i3, i4, i5, i6, i7, i8) \
    template <Major B> \
    struct Wgmma<N, T, B> { \
        static __device__ __forceinline__ void \
        dense(float* d, unsigned long long a, unsigned long long b, int add) \
        { \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #i2 \
                         ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
                         " {" WGMMA_R##HALF "}, %" #i0 ", %" #i1 ", add, 1, 1, 0, %" #i3 "; }" \
                         : WGMMA_O##HALF \
                         : "l"(a), "l"(b), "r"(add), "n"((int)B)); \
        } \
        template <int SELECTOR> \
        static __device__ __forceinline__ void \
        sparse(float* d, unsigned long long a, unsigned long long b, unsigned meta, int add) \
        { \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #i4 \
                         ", 0;\n" \
                         "wgmma.mma_async.sp.sync.aligned.m64n" #N "k32.f32." TYPE "." TYPE \
                         " {" WGMMA_R##HALF \
                         "}, %" #i0 ", %" #i1 ", %" #i2 ", %" #i3 ", add, 1, 1, 0, %" #i5 "; }" \
                         : WGMMA_O##HALF \
                         : "l"(a), "l"(b), "r"(meta), "n"(SELECTOR), "r"(add), "n"((int)B)); \
        } \
        template <int SELECTOR> \
        static __device__ __forceinline__ void \
        sparse(float* d, const uint4& a, unsigned long long b, unsigned meta, int add) \
        { \
            asm volatile( \
                "{ .reg .pred add; setp.ne.b32 add, %" #i7 \
                ", 0;\n" \
                "wgmma.mma_async.sp.sync.aligned.m64n" #N "k32.f32." TYPE "." TYPE \
                " {" WGMMA_R##HALF "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", %" #i5 \
                                   ", %" #i6 ", add, 1, 1, %" #i8 "; }" \
                : WGMMA_O##HALF \
                : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(meta), "n"(SELECTOR), \
                  "r"(add), "n"((int)B)); \
        } \
    };
#define WGMMA_BOTH(N, HALF, ...) \
    WGMMA_OF(N, HALF, BF16, "bf16", __VA_ARGS__) \
    WGMMA_OF(N, HALF, F16, "f16", __VA_ARGS__)

WGMMA_BOTH(8, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12)
WGMMA_BOTH(16, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16)
WGMMA_BOTH(32, 16, 16, 17, 18, 19, 20, 21, 22, 23, 24)
WGMMA_BOTH(64, 32, 32, 33, 34, 35, 36, 37, 38, 39, 40)
WGMMA_BOTH(96, 48, 48, 49, 50, 51, 52, 53, 54, 55, 56)
WGMMA_BOTH(128, 64, 64, 65, 66, 67, 68, 69, 70, 71, 72)
WGMMA_BOTH(160, 80, 80, 81, 82, 83, 84, 85, 86, 87, 88)
WGMMA_BOTH(192, 96, 96, 97, 98, 99, 100, 101, 102, 103, 104)
WGMMA_BOTH(224, 112, 112, 113, 114, 115, 116, 117, 118, 119, 120)
WGMMA_BOTH(256, 128, 128, 129, 130, 131, 132, 133, 134, 135, 136)

// The same for TF32, m64nNk8, B K_MAJOR. A from registers, 4 floats of a lane: (g, t), (g + 8, t),
// (g, t + 4), (g + 8, t + 4).
template <int N>
struct WgmmaTf32;
#define WGMMA_TF32(N, HALF, i0, i1, i2, i3, i4, i5) \
    template <> \
    struct WgmmaTf32<N> { \
        static __device__ __forceinline__ void \
        dense(float* d, const uint4& a, unsigned long long b, int add) \
        { \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #i5 \
                         ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" WGMMA_R##HALF \
                         "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", add, 1, 1; }" \
                         : WGMMA_O##HALF \
                         : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add)); \
        } \
        static __device__ __forceinline__ void \
        dense(float* d, unsigned long long a, unsigned long long b, int add) \
        { \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #i2 \
                         ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" WGMMA_R##HALF \
                         "}, %" #i0 ", %" #i1 ", add, 1, 1; }" \
                         : WGMMA_O##HALF \
                         : "l"(a), "l"(b), "r"(add)); \
        } \
    };
WGMMA_TF32(8, 4, 4, 5, 6, 7, 8, 9)
WGMMA_TF32(16, 8, 8, 9, 10, 11, 12, 13)
WGMMA_TF32(32, 16, 16, 17, 18, 19, 20, 21)
WGMMA_TF32(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA_TF32(96, 48, 48, 49, 50, 51, 52, 53)
WGMMA_TF32(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA_TF32(160, 80, 80, 81, 82, 83, 84, 85)
WGMMA_TF32(192, 96, 96, 97, 98, 99, 100, 101)
WGMMA_TF32(224, 112, 112, 113, 114, 115, 116, 117)
WGMMA_TF32(256, 128, 128, 129, 130, 131, 132, 133)
