// generate: entries of two kinds of matrices, and dense ones, each from its position alone, so that
// any GPU makes any part.
//
//   R-MAT (recursive matrix), a bit of row and column at a time     a = 0.57 ┌────┬────┐
//   The rows' bits are given, so of each level only the column's    b = 0.19 │ a  │ b  │
//   is drawn: 16 random bits against a threshold.                   c = 0.19 ├────┼────┤
//   Rows and columns are scrambled by a bijection, or all                    │ c  │ d  │
//   that is long would lie in the first part.                                └────┴────┘
//   P(right | upper) = b / (a + b), P(right | lower) = d / (c + d)
//
// Random number w of entry j of row i is number i << 36 | j << 4 | w of a stream (splitmix.cuh), of
// a stencil, which needs one for an entry, i << 5 | j. generate.py makes the same with NumPy.
#include "splitmix.cuh"

constexpr int VALUE = 15;  // w of an entry's value; those below are its column's

__device__ __forceinline__ u64 position(u64 row, u64 entry, int which)
{
    return row << 36 | entry << 4 | which;
}

// In (-1, 1), never 0, as splitmix.symmetric in splitmix.py.
__device__ __forceinline__ float symmetric(unsigned x)
{
    return ((float)(x >> 8) - 8388608.f + 0.5f) * 0x1p-23f;
}

// A bijection of the numbers of `bits` bits; the other way round with the inverse factors, in the
// other order.
struct Scramble {
    unsigned first, second;  // odd
    int bits;
    __device__ unsigned mask() const { return bits == 32 ? ~0u : (1u << bits) - 1; }
    __device__ unsigned folded(unsigned x) const { return x ^ x >> (bits + 1) / 2; }
    __device__ unsigned there(unsigned x) const
    {
        x = folded(x * first & mask());
        return folded(x * second & mask());
    }
    __device__ unsigned
    back(unsigned x) const  // of the inverse factors: `first` undoes the other's second
    {
        x = folded(x) * first & mask();
        return folded(x) * second & mask();
    }
};

// Entries of each of the rows begin … begin + rows - 1: what a row with so many 1 bits has on
// average, rounded at random.
__global__ void
rmat_lengths(int rows, u64 begin, int bits, unsigned first, unsigned second, u64 key,
             const double* __restrict__ mean,  // by 1 bits, bits + 1 of them
             int* __restrict__ length)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const u64 row = begin + i;
    const unsigned vertex = Scramble{first, second, bits}.there((unsigned)row);
    length[i] = (int)floor(mean[__popc(vertex)] + (random_u32(key, row) + 0.5) * 0x1p-32);
}

// A warp makes a row. upper, lower: of 65536, how often a column's bit is 1 where the row's is 0,
// or 1.
__global__ void
rmat_entries(int rows, u64 begin, int bits, unsigned first, unsigned second,  // there
             unsigned back_first, unsigned back_second, unsigned upper, unsigned lower, u64 key,
             const int* __restrict__ row_ptr,  // rows + 1, from 0
             int* __restrict__ col_idx, float* __restrict__ val)
{
    const int i = (int)(((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (i >= rows) return;
    const u64 row = begin + i;
    const unsigned vertex = Scramble{first, second, bits}.there((unsigned)row);
    const Scramble other{back_first, back_second, bits};
    const int from = row_ptr[i], count = row_ptr[i + 1] - from;
    for (int j = lane; j < count; j += 32) {
        unsigned column = 0, drawn = 0;
        for (int level = 0; level < bits; ++level) {
            if (level % 2 == 0) drawn = random_u32(key, position(row, j, level / 2));
            const unsigned part = level % 2 == 0 ? drawn >> 16 : drawn & 0xFFFF;
            const bool low = vertex >> (bits - 1 - level) & 1;
            column = column << 1 | (part < (low ? lower : upper));
        }
        col_idx[from + j] = (int)other.back(column);
        val[from + j] = symmetric(random_u32(key, position(row, j, VALUE)));
    }
}

// A point of a cubic grid and its 26 neighbours, as far as they are on it; a thread makes a row.
__global__ void stencil_entries(int rows, u64 begin, int side, u64 key,
                                const int* __restrict__ row_ptr, int* __restrict__ col_idx,
                                float* __restrict__ val)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const long long row = begin + i;
    const int x = row % side, y = row / side % side, z = row / ((long long)side * side);
    int at = row_ptr[i], j = 0;
    for (int dz = -1; dz <= 1; ++dz)
        for (int dy = -1; dy <= 1; ++dy)
            for (int dx = -1; dx <= 1; ++dx) {
                if (min(x + dx, min(y + dy, z + dz)) < 0 ||
                    max(x + dx, max(y + dy, z + dz)) >= side)
                    continue;
                col_idx[at] = (int)(row + ((long long)dz * side + dy) * side + dx);
                val[at++] = symmetric(random_u32(key, (u64)row << 5 | j++));
            }
}

// Rows begin … of a dense matrix with n columns, of which this panel has `width` from `right` on.
__global__ void dense_rows(u64 size, int width, u64 begin, u64 right, u64 n, u64 key,
                           float* __restrict__ out)
{
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step)
        out[i] = symmetric(random_u32(key, (begin + i / width) * n + right + i % width));
}
