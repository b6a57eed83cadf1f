// What the tensor-core microbenchmarks share: 16-bit operands in the registers of a warp, and its
// accumulators on their way out. A lane is 4 g + t: g from 0 to 7, t from 0 to 3.
#pragma once

using u16 = unsigned short;

// Two neighbours of a row-major matrix with `columns` columns, the left one in the low half.
__device__ __forceinline__ unsigned pair(const u16* matrix, int columns, int row, int column)
{
    return *reinterpret_cast<const unsigned*>(matrix + row * columns + column);
}

// 16 x 16 values of A from (row, column) on: dense, or what 16 x 32 values leave when they are
// stored 2:4.
__device__ __forceinline__ void load_a(unsigned (&r)[4], const u16* a, int columns, int row,
                                       int column)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        r[i] = pair(a, columns, row + g + i % 2 * 8, column + 2 * t + i / 2 * 8);
}

// 8 W x 8 values of B, which is column-major: `column` of B is a row of the array.
template <int W>
__device__ __forceinline__ void
load_b(unsigned (&r)[W], const u16* b, int rows, int row, int column)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < W; ++i) r[i] = pair(b, rows, column + g, row + 2 * t + 8 * i);
}

// Metadata of 16 rows and 64 columns of A, for two k32 instructions: row g in the low half, row g +
// 8 in the high one. The columns 0 to 31 lie with the lanes t = 0 and 1, which selector 0 names, 32
// to 63 with t = 2 and 3, selector 1.
__device__ __forceinline__ unsigned
metadata(const u16* meta,  // row-major, one u16 for 16 columns of A
         int width, int row, int column)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const u16* word = meta + (row + g) * width + column + t;
    return word[0] | (unsigned)word[8 * width] << 16;
}

// Writes 16 x 8 NT elements of C: d[4 j + i] is in row g for i < 2, else g + 8, and in column 8 j +
// 2 t + i % 2.
template <int NT>
__device__ __forceinline__ void store(float* c, int columns, const float* d)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        float* at = c + g * columns + 8 * j + 2 * t;
        *reinterpret_cast<float2*>(at) = {d[4 * j], d[4 * j + 1]};
        *reinterpret_cast<float2*>(at + 8 * columns) = {d[4 * j + 2], d[4 * j + 3]};
    }
}
