// compress_eight: a matrix of 8-bit numbers to 2:4 (two_four.cuh; two_four.py makes the same
// bits with NumPy). A group is one register.
//
//   dense  x0 x1 x2 x3 │ x4 x5 x6 x7 │ ... │ x28 x29 x30 x31   32 columns of one row: one thread,
//                                                              two 16-byte loads
//              ▼            ▼                     ▼
//   val      v0 v1     │   v2 v3     │ ... │   v14 v15         two of each group of four: one
//                                                              16-byte store
//   meta     bits 3..0 │   7..4      │ ... │   31..28          where they stood: one word
//
// Template:  mode  as in two_four.cuh
//            type  E4M3 or INT8
#include "two_four.cuh"

using u8 = unsigned char;

template <Mode mode, Type type>
__global__ void compress_eight(
    int m, int k,                  // sizes; k_pad = k rounded up to 32
    const u8* __restrict__ dense,  // m x k, row-major, 16-byte aligned
    u8* __restrict__ val,          // m x k_pad / 2, row-major
    unsigned* __restrict__ meta,   // m x k_pad / 32, row-major
    // Smallest row * k_pad / 4 + group with more than two non-zeros, or what was there before; not
    // used by PRUNE.
    unsigned long long* __restrict__ first)
{
    compress_groups<mode, type>(m, k, dense, val, meta, first);
}
