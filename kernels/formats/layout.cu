// layout: a sparse matrix as kernels read it, each in a launch; what layout.py says of it is so
// with NumPy, too, to the bit.
//
//   padded                    a matrix among zeros
//   row_keys, ordered_rows    rows with the places of their first and last entry, the longest first
//   stacked                   blocks of neighbouring rows of blocks in one, zeros between
//   swizzled, packed_values   2:4
//   tiled, step_index         N:M in steps of whole windows
//   marked, tile_ranks, tile_steps, tile_rows, tile_values
//                             N:M in tiles of the union of their rows
//
// Every kernel is a template, so that a cubin has the one that it was asked for.
#include "half.cuh"
#include "scan.cuh"
#include "searching.cuh"

using u8 = unsigned char;
using u16 = unsigned short;
using i64 = long long;
using u64 = unsigned long long;

// A block of threads has a row of the larger matrix, then the next one that nobody has.
template <class T>
__global__ void __launch_bounds__(THREADS)
    padded(const T* __restrict__ x, i64 rows, i64 columns, T* __restrict__ to, i64 to_rows,
           i64 to_columns)
{
    for (i64 r = blockIdx.x; r < to_rows; r += gridDim.x)
        for (i64 c = threadIdx.x; c < to_columns; c += THREADS)
            to[r * to_columns + c] = r < rows && c < columns ? x[r * columns + c] : T(0);
}

// ---- rows

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    row_keys(const int* __restrict__ row_ptr, int m, u64* __restrict__ key)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < m) key[i] = (u64)(0x7FFFFFFF - (row_ptr[i + 1] - row_ptr[i])) << 32 | i;
}

// key: sorted, or null: rows as they lie.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    ordered_rows(const int* __restrict__ row_ptr, int m, const u64* __restrict__ key,
                 int4* __restrict__ table)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= m) return;
    const int row = key ? (int)(unsigned)key[i] : i;
    table[i] = make_int4(row, row_ptr[row], row_ptr[row + 1], 0);
}

// A block of threads for each block of A. first, groups: of `high` rows of blocks over the union of
// their columns (planning.cu). to_val: zeros before. words: of a block.
template <class Word>
__global__ void __launch_bounds__(THREADS)
    stacked(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
            const Word* __restrict__ val, const int* __restrict__ first,
            const int* __restrict__ groups, int rows, int high, int words, int* __restrict__ to_idx,
            Word* __restrict__ to_val)
{
    __shared__ i64 to;
    const int block = blockIdx.x;
    if (threadIdx.x == 0) {
        const int row = owner(row_ptr, 0, rows, block), column = col_idx[block];
        const int at = groups[row / high] + place(row_ptr, col_idx, first, rows, high, row, column);
        if (first[block + 1] != first[block]) to_idx[at] = column;
        to = (i64)at * high + row % high;
    }
    __syncthreads();
    for (int e = threadIdx.x; e < words; e += THREADS)
        to_val[to * words + e] = val[(i64)block * words + e];
}

// ---- 2:4

// A word is the metadata of rows g and g + 8 of sixteen, and four groups of columns; beyond the
// matrix that of zeros. `wide` words of a row of words, which two_four.swizzle has in the order of
// rows, and, ring, wgmma.ring_metadata in that of threads.
template <bool RING>
__global__ void __launch_bounds__(THREADS)
    swizzled(const u16* __restrict__ meta, i64 m, i64 width, i64 words, i64 wide,
             unsigned* __restrict__ to)
{
    constexpr u16 EMPTY = 0x4444;
    const i64 i = blockIdx.x * (i64)THREADS + threadIdx.x;
    if (i >= words) return;
    i64 row, column;  // of 8 rows of words each sixteen of A, of 4 words each 64 columns
    if (RING) {
        const i64 pieces = wide / 4, tile = i / 128 / pieces;
        row = tile * 32 + i / 4 % 32, column = i / 128 % pieces * 4 + i % 4;
    } else row = i / wide, column = i % wide;
    const i64 at = row / 8 * 16 + row % 8;
    auto of = [&](i64 r) {
        return (unsigned)(r < m && column < width ? meta[r * width + column] : EMPTY);
    };
    to[i] = of(at) | of(at + 8) << 16;
}

// Pieces of 64 rows and 32 values, units of 8 values in the order of the 64-byte swizzle. width:
// values of a row of A.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    packed_values(const u16* __restrict__ val, i64 m, i64 width, i64 wide, i64 units,
                  uint4* __restrict__ to)
{
    const i64 i = blockIdx.x * (i64)THREADS + threadIdx.x;
    if (i >= units) return;
    const int unit = i % 4, r = i / 4 % 64;
    const i64 piece = i / 256, row = piece / wide * 64 + r,
              column = piece % wide * 32 + (unit ^ r / 2 % 4) * 8;
    unsigned x[4] = {};
    if (row < m && column < width) {
        const u16* from = val + row * width + column;
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = from[2 * e] | (unsigned)from[2 * e + 1] << 16;
    }
    to[i] = make_uint4(x[0], x[1], x[2], x[3]);
}

// ---- N:M in steps

// (blocks, steps, height, columns), a warp a row of it: `rows` compressed rows of a step, then
// zeros.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tiled(const float* __restrict__ val, i64 w, i64 n, i64 lines, int steps, int rows, int height,
          int columns, float* __restrict__ to)
{
    const int lane = threadIdx.x % 32;
    const i64 all = gridDim.x * (i64)(THREADS / 32);
    for (i64 line = blockIdx.x * (i64)(THREADS / 32) + threadIdx.x / 32; line < lines;
         line += all) {
        const int r = line % height;
        const i64 step = line / height % steps, left = line / height / steps * columns,
                  row = step * rows + r;
        const bool some = r < rows && row < w;
        for (int c = lane; c < columns; c += 32)
            to[line * columns + c] = some && left + c < n ? val[row * n + left + c] : 0.f;
    }
}

// (blocks, steps, slots, height): for each slot of columns the place of a compressed row among its
// step's `depth` rows; 0 beyond B. unit: columns that have one vector for sure; vector: columns of
// a vector.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    step_index(const int* __restrict__ index, i64 w, i64 n, i64 q, i64 vector, i64 size, int blocks,
               int steps, int rows, int height, int columns, int slot, int unit, int depth,
               int* __restrict__ to)
{
    const int slots = columns / slot;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < size; i += gridDim.x * (i64)THREADS) {
        const int r = i % height, s = i / height % slots, step = i / height / slots % steps;
        const i64 left = i / height / slots / steps * columns + s * slot,
                  row = (i64)step * rows + r;
        int place = 0;
        if (r < rows && row < w && left < n) {
            const i64 v = min(left / unit * unit / vector, q - 1);
            place = index[row * q + v] - step * depth;
        }
        to[i] = place;
    }
}

// ---- N:M in tiles of 128 columns, a step of 128 bytes of rows

constexpr int COLUMNS = 128;

// needed: (tiles, k), zeros before; which rows of A^T any vector of a tile has. unit: columns that
// have one vector and one tile.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    marked(const int* __restrict__ index, i64 real, i64 q, i64 vector, i64 k, i64 units, i64 unit,
           u8* __restrict__ needed)
{
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < real * units;
         i += gridDim.x * (i64)THREADS) {
        const i64 column = i % units * unit;
        needed[column / COLUMNS * k + index[i / units * q + column / vector]] = 1;
    }
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tile_ranks(const u8* __restrict__ needed, int size, u64* tiles, unsigned launch,
               int* __restrict__ out)
{
    scan(size, tiles, launch, out, [&](int i) { return (unsigned)needed[i]; });
}

// rank: what `tile_ranks` counted, (tiles * k + 1).
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tile_steps(const int* __restrict__ rank, int count, i64 k, int depth, u64* tiles,
               unsigned launch, int* __restrict__ start)
{
    scan(count, tiles, launch, start,
         [&](int t) { return (unsigned)((rank[(t + 1) * k] - rank[t * k] + depth - 1) / depth); });
}

// The rows of a tile's steps, ascending; its last one is repeated to a whole number of steps.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    tile_rows(const u8* __restrict__ needed, const int* __restrict__ rank,
              const int* __restrict__ start, i64 size, i64 k, int depth, int* __restrict__ index)
{
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < size; i += gridDim.x * (i64)THREADS) {
        if (!needed[i]) continue;
        const i64 tile = i / k, begin = (i64)start[tile] * depth;
        const int row = (int)(i % k), place = rank[i] - rank[tile * k];
        index[begin + place] = row;
        if (rank[i + 1] != rank[(tile + 1) * k]) continue;
        for (i64 p = begin + place + 1; p < (i64)start[tile + 1] * depth; ++p) index[p] = row;
    }
}

__device__ __forceinline__ void put(float* to, float x) { *to = x; }
__device__ __forceinline__ void put(u16* to, float x)
{
    *to = (u16)(isnan(x) ? 0x7FFFu : pack<BF16>(x, 0.f));
}

// values: (steps, 128, 128 bytes), zeros before; the 16-byte unit u of a column's line is at u ^
// column % 8.
template <class T>
__global__ void __launch_bounds__(THREADS)
    tile_values(const int* __restrict__ index, const float* __restrict__ val,
                const int* __restrict__ rank, const int* __restrict__ start, i64 real, i64 n, i64 q,
                i64 vector, i64 k, T* __restrict__ values)
{
    constexpr int SIZE = sizeof(T), DEPTH = 128 / SIZE, EACH_UNIT = 16 / SIZE;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < real * n;
         i += gridDim.x * (i64)THREADS) {
        const i64 j = i % n, tile = j / COLUMNS;
        const int line = (int)(j % COLUMNS), row = index[i / n * q + j / vector];
        const int place = rank[tile * k + row] - rank[tile * k], inside = place % DEPTH;
        const i64 step = start[tile] + place / DEPTH;
        put(values + (step * COLUMNS + line) * DEPTH + (inside / EACH_UNIT ^ line % 8) * EACH_UNIT +
                inside % EACH_UNIT,
            val[i]);
    }
}
