// Compress a matrix to 2:4, pruned by magnitude or as it is: a thread reads 32 bytes of one row
// and keeps two of each group of four.
//
// The matrix is read once and half of it written: nothing else is to be gained, so the threads
// share nothing.
//
// Template:  mode  FIT    report the first group with three or four non-zeros, and compress: what
//                         is written holds only where nothing is reported
//                  PRUNE  compress whatever there is: each group keeps its two largest magnitudes
//            type  of the numbers: SIXTEEN, bit patterns of bfloat16 or float16; E4M3, INT8
#pragma once

#include "two_largest.cuh"

enum Mode { FIT, PRUNE };
enum Type { SIXTEEN, E4M3, INT8 };

// Columns c and c + 1 of a row, packed; beyond the matrix there are zeros.
__device__ __forceinline__ unsigned word(const unsigned short* row, int c, int k)
{
    return (c < k ? row[c] : 0u) | (c + 1 < k ? row[c + 1] : 0u) << 16;
}

// Columns c to c + 3.
__device__ __forceinline__ unsigned word(const unsigned char* row, int c, int k)
{
    unsigned four = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) four |= (c + i < k ? row[c + i] : 0u) << 8 * i;
    return four;
}

// The size of each of four numbers: without the sign of e4m3, whose NaN is the largest, or |x| of
// two's complement.
template <Type type>
__device__ __forceinline__ unsigned magnitudes(unsigned four)
{
    return type == E4M3 ? four & 0x7f7f7f7f : __vabs4(four);
}

template <Mode mode, Type type, class Number, class Meta>
__device__ __forceinline__ void
compress_groups(int m, int k, const Number* __restrict__ dense, Number* __restrict__ val,
                Meta* __restrict__ meta, unsigned long long* __restrict__ first)
{
    constexpr int COLUMNS = 32 / sizeof(Number), GROUPS = COLUMNS / 4;  // of a thread
    const unsigned units = k / COLUMNS + (k % COLUMNS != 0);            // threads of a row
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned row = thread / units, unit = thread % units;
    if (row >= (unsigned)m) return;

    unsigned x[8];
    const Number* source = dense + (size_t)row * k;
    const int column = unit * COLUMNS;
    if (k % (COLUMNS / 2) == 0 && k - column >= COLUMNS) {
        const uint4* wide = reinterpret_cast<const uint4*>(source + column);
        const uint4 left = wide[0], right = wide[1];
        x[0] = left.x, x[1] = left.y, x[2] = left.z, x[3] = left.w;
        x[4] = right.x, x[5] = right.y, x[6] = right.z, x[7] = right.w;
    } else {  // the ragged end of a row, or rows that do not begin at multiples of 16 bytes
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = word(source, column + COLUMNS / 8 * i, k);
    }

    unsigned kept[4] = {}, indices = 0;
    int wrong = GROUPS;  // first group of this thread that does not fit
#pragma unroll
    for (int g = GROUPS - 1; g >= 0; g--) {
        unsigned a, b, c, d;
        if constexpr (type == SIXTEEN) {
            const unsigned ab = x[2 * g], cd = x[2 * g + 1];
            a = ab & 0x7fff, b = ab >> 16 & 0x7fff, c = cd & 0x7fff, d = cd >> 16 & 0x7fff;
        } else {
            const unsigned size = magnitudes<type>(x[g]);
            a = size & 0xff, b = size >> 8 & 0xff, c = size >> 16 & 0xff, d = size >> 24;
        }
        if ((a != 0) + (b != 0) + (c != 0) + (d != 0) > 2) wrong = g;
        const unsigned pair = two_largest(a, b, c, d), low = pair & 3, high = pair >> 2;
        // Column i of the group is bytes 2i and 2i + 1 of the eight in its two registers, or byte i
        // of the four in its one.
        if constexpr (type == SIXTEEN)
            kept[g] = __byte_perm(x[2 * g], x[2 * g + 1], 0x1010 + 0x22 * low + 0x2200 * high);
        else kept[g / 2] |= (__byte_perm(x[g], 0, low | high << 4) & 0xffff) << 16 * (g % 2);
        indices |= pair << 4 * g;
    }

    if (mode != PRUNE && wrong < GROUPS) {
        const unsigned long long place =
            (unsigned long long)row * units * GROUPS + unit * GROUPS + wrong;
        // Looking first keeps a matrix full of misfits from queueing up here: the value only ever
        // falls.
        if (place < *(volatile unsigned long long*)first) atomicMin(first, place);
    }
    const size_t at = (size_t)row * units + unit;
    reinterpret_cast<uint4*>(val)[at] = make_uint4(kept[0], kept[1], kept[2], kept[3]);
    meta[at] = (Meta)indices;
}
