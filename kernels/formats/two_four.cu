// compress: a matrix of 16-bit numbers to 2:4 (two_four.cuh; two_four.py makes the same bits with
// NumPy). A group is two registers.
//
//   dense  x0 x1 x2 x3 │ x4 x5 x6 x7 │ x8 x9 xA xB │ xC xD xE xF  16 columns of one row: one thread
//            16 bytes, one load        16 bytes, one load
//              ▼            ▼             ▼            ▼
//   val      v0 v1     │   v2 v3     │   v4 v5     │   v6 v7      two of each group of four: one
//                                                                 16-byte store
//   meta     bits 3..0 │   7..4      │   11..8     │   15..12     where they stood: one uint16
//
// Template:  mode  as in two_four.cuh
#include "two_four.cuh"

using u16 = unsigned short;

template <Mode mode>
__global__ void compress(
    int m, int k,                   // sizes; k_pad = k rounded up to 16
    const u16* __restrict__ dense,  // m x k, row-major, 16-byte aligned; of bfloat16 or float16
    u16* __restrict__ val,          // m x k_pad / 2, row-major
    u16* __restrict__ meta,         // m x k_pad / 16, row-major
    // Smallest row * k_pad / 4 + group with more than two non-zeros, or what was there before; not
    // used by PRUNE.
    unsigned long long* __restrict__ first)
{
    compress_groups<mode, SIXTEEN>(m, k, dense, val, meta, first);
}
