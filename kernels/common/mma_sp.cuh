// mma.sp: a warp multiplies 16 x 32, 2:4 sparse, by 32 x 8 and adds to 16 x 8 (sm_80 and later;
// SASS: HMMA.SP.16832).
//
// What lane 4 g + t holds (PTX ISA, "Matrix Fragments for sparse mma.m16n8k32 with .f16 and .bf16
// types"):
//
//   a[4]  of the 16 x 16 compressed values, two neighbours each:
//           (g, 2t)  (g + 8, 2t)  (g, 2t + 8)   (g + 8, 2t + 8)
//   b[4]  of the 32 x 8, two neighbours of a column each:
//           (2t, g)  (2t + 8, g)  (2t + 16, g)  (2t + 24, g)
//   d[4]  of the 16 x 8, float32:
//           (g, 2t)  (g, 2t + 1)  (g + 8, 2t)   (g + 8, 2t + 1)
//   e     metadata, two indices of 2 bits for each group of four columns, the smaller first: row g
//         in the low half, row g + 8 in the high half.
//         SELECTOR 0 reads it from t = 0, columns 0 to 15, and t = 1, columns 16 to 31;
//         SELECTOR 1 from t = 2 and t = 3. The other lanes' e is not looked at.
#pragma once

#include "half.cuh"

// d += a . b. Not volatile: it touches registers only, so the compiler may move it between loads.
template <Dtype T, int SELECTOR>
__device__ __forceinline__ void
mma_sp_m16n8k32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[4], unsigned e)
{
    static_assert(SELECTOR == 0 || SELECTOR == 1, "of four lanes, two pairs can hold the metadata");
    if constexpr (T == BF16)
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]),
              "r"(b[3]), "r"(e), "n"(SELECTOR));
    else
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]),
              "r"(b[3]), "r"(e), "n"(SELECTOR));
}
