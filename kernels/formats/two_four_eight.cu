// Check, or prune by magnitude, and compress a matrix of 8-bit numbers to 2:4 (two_four_eight.py makes the same bits with NumPy).
//
//   dense  x0 x1 x2 x3 │ x4 x5 x6 x7 │ ... │ x28 x29 x30 x31     32 columns of one row: one thread, two 16-byte loads
//              ▼            ▼                     ▼
//   val      v0 v1     │   v2 v3     │ ... │   v14 v15           two of each group of four: one 16-byte store
//   meta     bits 3..0 │   7..4      │ ... │   31..28            where they stood: one word
//
// As two_four.cu; a group is one register here.
//
// Template:  mode  CHECK  only report the first group with three or four non-zeros
//                  FIT    report it, and compress: what is written holds only where nothing is reported
//                  PRUNE  compress whatever there is: each group keeps its two largest magnitudes

#include "two_largest.cuh"

enum Mode { CHECK, FIT, PRUNE };
enum Type { E4M3, INT8 };

using u8 = unsigned char;

// Columns c to c + 3 of a row, packed; beyond the matrix there are zeros.
__device__ __forceinline__ unsigned four_columns(const u8* row, int c, int k)
{
    unsigned four = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) four |= (c + i < k ? row[c + i] : 0u) << 8 * i;
    return four;
}

// The size of each of four numbers: without the sign of e4m3, whose NaN is the largest, or |x| of two's complement.
template <Type type>
__device__ __forceinline__ unsigned magnitudes(unsigned four)
{
    return type == E4M3 ? four & 0x7f7f7f7f : __vabs4(four);
}

template <Mode mode, Type type>
__global__ void compress_eight(
    int m, int k,                       // sizes; k_pad = k rounded up to 32
    const u8* __restrict__ dense,       // m x k, row-major, 16-byte aligned
    u8* __restrict__ val,               // m x k_pad / 2, row-major; not used by CHECK
    unsigned* __restrict__ meta,        // m x k_pad / 32, row-major; not used by CHECK
    unsigned long long* __restrict__ first)  // smallest row * k_pad / 4 + group with more than two non-zeros, or
                                             // what was there before; not used by PRUNE
{
    const unsigned units = k / 32 + (k % 32 != 0);  // threads of a row
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned row = thread / units, unit = thread % units;
    if (row >= (unsigned)m) return;

    unsigned x[8];  // a group each
    const u8* source = dense + (size_t)row * k;
    const int column = unit * 32;
    if (k % 16 == 0 && k - column >= 32) {
        const uint4* wide = reinterpret_cast<const uint4*>(source + column);
        const uint4 left = wide[0], right = wide[1];
        x[0] = left.x,  x[1] = left.y,  x[2] = left.z,  x[3] = left.w;
        x[4] = right.x, x[5] = right.y, x[6] = right.z, x[7] = right.w;
    } else {  // the ragged end of a row, or rows that do not begin at multiples of 16 bytes
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = four_columns(source, column + 4 * i, k);
    }

    unsigned kept[4] = {}, indices = 0;
    int wrong = 8;  // first group of this thread that does not fit
#pragma unroll
    for (int g = 7; g >= 0; g--) {
        const unsigned size = magnitudes<type>(x[g]);
        const unsigned a = size & 0xff, b = size >> 8 & 0xff, c = size >> 16 & 0xff, d = size >> 24;
        if ((a != 0) + (b != 0) + (c != 0) + (d != 0) > 2) wrong = g;
        const unsigned pair = two_largest(a, b, c, d), low = pair & 3, high = pair >> 2;
        kept[g / 2] |= (__byte_perm(x[g], 0, low | high << 4) & 0xffff) << 16 * (g % 2);
        indices |= pair << 4 * g;
    }

    if (mode != PRUNE && wrong < 8) {
        const unsigned long long place = (unsigned long long)row * units * 8 + unit * 8 + wrong;
        // Looking first keeps a matrix full of misfits from queueing up here: the value only ever falls.
        if (place < *(volatile unsigned long long*)first) atomicMin(first, place);
    }
    if (mode != CHECK) {
        const size_t at = (size_t)row * units + unit;
        reinterpret_cast<uint4*>(val)[at] = make_uint4(kept[0], kept[1], kept[2], kept[3]);
        meta[at] = indices;
    }
}
