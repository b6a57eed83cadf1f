// mma.sync: a warp multiplies 16 x 16 by 16 x 8 and adds to 16 x 8 (sm_80 and later; SASS:
// HMMA.16816).
//
// What lane 4 g + t holds (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"),
// two neighbours a register:
//
//   a[4]  of the 16 x 16:  (g, 2t)  (g + 8, 2t)  (g, 2t + 8)  (g + 8, 2t + 8)
//   b[2]  of the 16 x 8, neighbours of a column:  (2t, g)  (2t + 8, g)
//   d[4]  of the 16 x 8, float32:  (g, 2t)  (g, 2t + 1)  (g + 8, 2t)  (g + 8, 2t + 1)
#pragma once

#include "half.cuh"

// d += a . b. Not volatile: it touches registers only, so the compiler may move it between loads.
template <Dtype T>
__device__ __forceinline__ void
mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    if constexpr (T == BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// An 8 x 8 matrix of 16-bit elements, of which lane 4 g + t holds (g, 2t) and (g, 2t + 1),
// transposed: the lane then has (2t, g) and (2t + 1, g) (sm_75; SASS: MOVM).
__device__ __forceinline__ unsigned transposed_8x8(unsigned two)
{
    unsigned y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(two));
    return y;
}
