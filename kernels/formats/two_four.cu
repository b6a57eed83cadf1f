// Check, or prune by magnitude, and compress a matrix to 2:4 (two_four.py makes the same bits with NumPy).
//
//   dense  x0 x1 x2 x3 │ x4 x5 x6 x7 │ x8 x9 xA xB │ xC xD xE xF     16 columns of one row: one thread
//            16 bytes, one load        16 bytes, one load
//              ▼            ▼             ▼            ▼
//   val      v0 v1     │   v2 v3     │   v4 v5     │   v6 v7         two of each group of four: one 16-byte store
//   meta     bits 3..0 │   7..4      │   11..8     │   15..12        where they stood: one uint16
//
// The matrix is read once and half of it written: nothing else is to be gained, so the threads share nothing.
//
// Template:  mode  CHECK  only report the first group with three or four non-zeros
//                  FIT    report it, and compress: what is written holds only where nothing is reported
//                  PRUNE  compress whatever there is: each group keeps its two largest magnitudes

#include "two_largest.cuh"

enum Mode { CHECK, FIT, PRUNE };

using u16 = unsigned short;

// Columns c and c + 1 of a row, packed; beyond the matrix there are zeros.
__device__ __forceinline__ unsigned two_columns(const u16* row, int c, int k)
{
    return (c < k ? row[c] : 0u) | (c + 1 < k ? row[c + 1] : 0u) << 16;
}

template <Mode mode>
__global__ void compress(
    int m, int k,                       // sizes; k_pad = k rounded up to 16
    const u16* __restrict__ dense,      // m x k, row-major, 16-byte aligned; bit patterns of bfloat16 or float16
    u16* __restrict__ val,              // m x k_pad / 2, row-major; not used by CHECK
    u16* __restrict__ meta,             // m x k_pad / 16, row-major; not used by CHECK
    unsigned long long* __restrict__ first)  // smallest row * k_pad / 4 + group with more than two non-zeros, or
                                             // what was there before; not used by PRUNE
{
    const unsigned units = k / 16 + (k % 16 != 0);  // threads of a row
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned row = thread / units, unit = thread % units;
    if (row >= (unsigned)m) return;

    unsigned x[8];  // two columns each
    const u16* source = dense + (size_t)row * k;
    const int column = unit * 16;
    if (k % 8 == 0 && k - column >= 16) {
        const uint4* wide = reinterpret_cast<const uint4*>(source + column);
        const uint4 left = wide[0], right = wide[1];
        x[0] = left.x,  x[1] = left.y,  x[2] = left.z,  x[3] = left.w;
        x[4] = right.x, x[5] = right.y, x[6] = right.z, x[7] = right.w;
    } else {  // the ragged end of a row, or rows that do not begin at multiples of 16 bytes
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = two_columns(source, column + 2 * i, k);
    }

    unsigned kept[4], indices = 0;
    int wrong = 4;  // first group of this thread that does not fit
#pragma unroll
    for (int g = 3; g >= 0; g--) {
        const unsigned ab = x[2 * g], cd = x[2 * g + 1];
        const unsigned a = ab & 0x7fff, b = ab >> 16 & 0x7fff, c = cd & 0x7fff, d = cd >> 16 & 0x7fff;
        if ((a != 0) + (b != 0) + (c != 0) + (d != 0) > 2) wrong = g;
        const unsigned pair = two_largest(a, b, c, d), low = pair & 3, high = pair >> 2;
        // Column i of the group is bytes 2i and 2i + 1 of the eight in (ab, cd).
        kept[g] = __byte_perm(ab, cd, 0x1010 + 0x22 * low + 0x2200 * high);
        indices |= pair << 4 * g;
    }

    if (mode != PRUNE && wrong < 4) {
        const unsigned long long place = (unsigned long long)row * units * 4 + unit * 4 + wrong;
        // Looking first keeps a matrix full of misfits from queueing up here: the value only ever falls.
        if (place < *(volatile unsigned long long*)first) atomicMin(first, place);
    }
    if (mode != CHECK) {
        const size_t at = (size_t)row * units + unit;
        reinterpret_cast<uint4*>(val)[at] = make_uint4(kept[0], kept[1], kept[2], kept[3]);
        meta[at] = (u16)indices;
    }
}
