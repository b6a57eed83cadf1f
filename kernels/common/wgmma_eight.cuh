// wgmma on 8-bit floats, e4m3: 64 x k by k x N, A 2:4 sparse (sm_90a; SASS: QGMMA.SP). What
// wgmma.cuh says of accumulators and of matrices in shared memory holds here, too.
//
// Both operands are K-major in shared memory: rows of k values, of A compressed to k/2; the
// instruction transposes nothing. A step is k = 64: 32 bytes of a row of A, 64 of a row of B.
// Metadata is one word of each of the 128 threads, and there is no selector but 0
// (formats/two_four.py, words).
//
// Sums are float32 in registers, but the tensor cores of sm_90 keep only 13 bits behind the leading
// one while they add (DeepSeek-AI, "DeepSeek-V3 Technical Report", section 3.5.2: 14 bits in all):
// artifact/measure/verification.py has limits of its own for that.
#pragma once

#include "wgmma_widths.cuh"

// m64nNk64. d: N / 2 accumulators; a, b: k_major; add: 0 begins with zero.
template <int N>
struct WgmmaE4m3;

// i0 to i4: numbers of the operands after the accumulators.
#define WGMMA_E4M3(N, HALF, i0, i1, i2, i3, i4) \
    template <> \
    struct WgmmaE4m3<N> { \
        static __device__ __forceinline__ void \
        sparse(float* d, unsigned long long a, unsigned long long b, unsigned meta, int add) \
        { \
            asm volatile( \
                "{ .reg .pred add; setp.ne.b32 add, %" #i4 \
                ", 0;\n" \
                "wgmma.mma_async.sp.sync.aligned.m64n" #N "k64.f32.e4m3.e4m3 {" WGMMA_R##HALF \
                "}, %" #i0 ", %" #i1 ", %" #i2 ", %" #i3 ", add, 1, 1; }" \
                : WGMMA_O##HALF \
                : "l"(a), "l"(b), "r"(meta), "n"(0), "r"(add)); \
        } \
    };
WGMMA_E4M3(16, 8, 8, 9, 10, 11, 12)
WGMMA_E4M3(32, 16, 16, 17, 18, 19, 20)
WGMMA_E4M3(64, 32, 32, 33, 34, 35, 36)
WGMMA_E4M3(96, 48, 48, 49, 50, 51, 52)
WGMMA_E4M3(128, 64, 64, 65, 66, 67, 68)
WGMMA_E4M3(144, 72, 72, 73, 74, 75, 76)
WGMMA_E4M3(160, 80, 80, 81, 82, 83, 84)
WGMMA_E4M3(176, 88, 88, 89, 90, 91, 92)
WGMMA_E4M3(184, 92, 92, 93, 94, 95, 96)
WGMMA_E4M3(192, 96, 96, 97, 98, 99, 100)
WGMMA_E4M3(256, 128, 128, 129, 130, 131, 132)
