// wgmma of 16-bit types with A from registers and B K_MAJOR in shared memory (sm_90a).
//
//   d (64 x N) += A (64 x 16) . B (16 x N); of A a lane 4 g + t holds k 2 t and 2 t + 1 of rows g
//   and g + 8, then k + 8 of both
#pragma once

#include "wgmma.cuh"

template <int N, Dtype T>
struct WgmmaRegisters;

// i0 to i5: numbers of the operands after the accumulators; add: 0 begins with zero.
#define WGMMA_REGISTERS(N, HALF, T, TYPE, i0, i1, i2, i3, i4, i5) \
    template <> \
    struct WgmmaRegisters<N, T> { \
        static __device__ __forceinline__ void \
        dense(float* d, const uint4& a, unsigned long long b, int add) \
        { \
            asm volatile( \
                "{ .reg .pred add; setp.ne.b32 add, %" #i5 \
                ", 0;\n" \
                "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_R##HALF \
                "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", add, 1, 1, 0; }" \
                : WGMMA_O##HALF \
                : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(add)); \
        } \
    };
#define WGMMA_REGISTERS_BOTH(N, HALF, ...) \
    WGMMA_REGISTERS(N, HALF, BF16, "bf16", __VA_ARGS__) \
    WGMMA_REGISTERS(N, HALF, F16, "f16", __VA_ARGS__)

WGMMA_REGISTERS_BOTH(8, 4, 4, 5, 6, 7, 8, 9)
WGMMA_REGISTERS_BOTH(16, 8, 8, 9, 10, 11, 12, 13)
WGMMA_REGISTERS_BOTH(32, 16, 16, 17, 18, 19, 20, 21)
WGMMA_REGISTERS_BOTH(64, 32, 32, 33, 34, 35, 36, 37)
