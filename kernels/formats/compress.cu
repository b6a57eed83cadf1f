// compress: from arrays to the sparse formats, and from these to CSR, each in a launch or two;
// compress.py makes the same bits with NumPy, but for what a NaN carries.
//
//   cast            any numbers to float32, in the order of rows, and which of them float32 does
//                   not hold
//   filled          how many values are not 0
//   look_at_blocks  of each block of a dense matrix the sum of squares, and how many are not 0
//   kept, place_blocks, gather_blocks     the blocks that stay
//   vector_scores, chosen_rows, chosen_values     N:M
//   block_rows, window_rows, pair_rows, vector_rows
//                   CSR's rows, which are counted first and then written
//
// Every kernel is a template, so that a cubin has the one that it was asked for.
//
// Template:  T    what stored values are: float, Brain (bfloat16) or Ieee (float16)
//            AS   what they become: AS_IT_IS, TO_BF16, TO_F16
#include "half.cuh"
#include "scan.cuh"

using u8 = unsigned char;
using u16 = unsigned short;
using i64 = long long;
using u64 = unsigned long long;

enum { AS_IT_IS, TO_BF16, TO_F16 };

struct Brain {
    u16 bits;
};
struct Ieee {
    u16 bits;
};

template <class T>
__device__ __forceinline__ float number(T x)
{
    return (float)x;
}
template <>
__device__ __forceinline__ float number(Brain x)
{
    return unpack<BF16>(x.bits).x;
}
template <>
__device__ __forceinline__ float number(Ieee x)
{
    return unpack<F16>(x.bits).x;
}

__device__ __forceinline__ bool nonzero(float x) { return (__float_as_uint(x) & 0x7FFFFFFFu) != 0; }
__device__ __forceinline__ bool nonzero(u16 x) { return (x & 0x7FFF) != 0; }
__device__ __forceinline__ bool nonzero(Brain x) { return nonzero(x.bits); }
__device__ __forceinline__ bool nonzero(Ieee x) { return nonzero(x.bits); }

template <int AS>
__device__ __forceinline__ auto stored(float x)
{
    if constexpr (AS == AS_IT_IS) return x;
    else return (u16)(isnan(x) ? 0x7FFFu : pack<AS == TO_BF16 ? BF16 : F16>(x, 0.f));
}
template <int AS>
__device__ __forceinline__ u16 stored(u16 x)
{
    return x;
}

__device__ __forceinline__ i64 first_thread() { return blockIdx.x * (i64)THREADS + threadIdx.x; }
__device__ __forceinline__ i64 all_threads() { return gridDim.x * (i64)THREADS; }

// ---- counts, which the last block to end hands to the host

struct Counts {
    u64 values, places;
    unsigned ended, unused;
};

// All threads of a block call it, once in a kernel.
__device__ __forceinline__ void handed(u64 values, u64 places, Counts* sums, Counts* found)
{
    __shared__ u64 block[2];
    if (threadIdx.x < 2) block[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int lane = 16; lane; lane /= 2) {
        values += __shfl_down_sync(~0u, values, lane);
        places += __shfl_down_sync(~0u, places, lane);
    }
    if (threadIdx.x % 32 == 0) {
        if (values) atomicAdd(block, values);
        if (places) atomicAdd(block + 1, places);
    }
    __syncthreads();
    if (threadIdx.x) return;
    if (block[0]) atomicAdd(&sums->values, block[0]);
    if (block[1]) atomicAdd(&sums->places, block[1]);
    __threadfence();
    if (atomicAdd(&sums->ended, 1u) + 1 < gridDim.x) return;
    __threadfence();
    volatile Counts* from = sums;
    found->values = from->values, found->places = from->places;
    __threadfence_system();
    from->values = from->places = 0;
    from->ended = 0;
}

// ---- numbers

// Whether float32 holds a number, which it became. Compared as floats, 2^53 + 1 would be 2^53.
template <class T>
__device__ __forceinline__ bool held(T, float)
{
    return true;
}
__device__ __forceinline__ bool held(double x, float y) { return (double)y == x || isnan(y); }
__device__ __forceinline__ bool held(int x, float y) { return y < 0x1p31f && (int)y == x; }
__device__ __forceinline__ bool held(unsigned x, float y)
{
    return y < 0x1p32f && (unsigned)y == x;
}
__device__ __forceinline__ bool held(i64 x, float y) { return y < 0x1p63f && (i64)y == x; }
__device__ __forceinline__ bool held(u64 x, float y) { return y < 0x1p64f && (u64)y == x; }

template <class T>
__device__ __forceinline__ void put(float* to, T x, u64* first, i64 at)
{
    const float y = number(x);
    *to = y;
    if (first && !held(x, y)) atomicMax(first, (1ull << 63) - at);
}
__device__ __forceinline__ void put(u16* to, u16 x, u64*, i64) { *to = x; }

// x: (size / d1 / d2, d1, d2), strides in elements. first: 2^63 - the first element that float32
// does not hold, 0 before, or null.
template <class T, class To>
__global__ void __launch_bounds__(THREADS)
    cast(const T* __restrict__ x, i64 size, i64 d1, i64 d2, i64 s0, i64 s1, i64 s2,
         To* __restrict__ to, u64* first)
{
    const bool flat = s2 == 1 && s1 == d2 && s0 == d1 * d2;
    for (i64 i = first_thread(); i < size; i += all_threads())
        put(to + i, x[flat ? i : i / d2 / d1 * s0 + i / d2 % d1 * s1 + i % d2 * s2], first, i);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    filled(const T* __restrict__ x, i64 size, Counts* sums, Counts* found)
{
    u64 some = 0;
    for (i64 i = first_thread(); i < size; i += all_threads()) some += nonzero(x[i]);
    handed(some, 0, sums, found);
}

// flag: whether some number has one of these bits.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    has_bits(const unsigned* __restrict__ x, i64 size, unsigned bits, int* flag)
{
    bool some = false;
    for (i64 i = first_thread(); i < size; i += all_threads()) some |= (x[i] & bits) != 0;
    if (__syncthreads_or(some) && threadIdx.x == 0) *flag = 1;
}

// ---- blocks of a dense matrix

// A thread has a column of a block, `wide` of them, a power of 2; then pairs of neighbours add up,
// and pairs of pairs. key sorts by the sum of squares, the largest first, NaN as infinity; null: it
// is not asked for.
template <class T, int AS>
__global__ void __launch_bounds__(THREADS)
    look_at_blocks(const T* __restrict__ x, i64 m, i64 k, int high, int wide, i64 columns,
                   i64 count, u64* __restrict__ key, int* __restrict__ filled)
{
    __shared__ double sum_of[THREADS / 32];
    __shared__ int some_of[THREADS / 32];
    const int column = threadIdx.x % wide, warp = threadIdx.x / 32;
    const i64 block = blockIdx.x * (i64)(THREADS / wide) + threadIdx.x / wide;
    const i64 top = block / columns * high, j = block % columns * wide + column;
    double sum = 0;
    int some = 0;
    if (block < count && j < k) {
        const int rows = (int)min((i64)high, m - top);
#pragma unroll 4
        for (int r = 0; r < rows; ++r) {
            const T v = x[(top + r) * k + j];
            some += nonzero(stored<AS>(v));
            if (key) sum += (double)v * (double)v;
        }
    }
    for (int step = 1; step < wide && step < 32; step *= 2) {
        sum += __shfl_xor_sync(~0u, sum, step);
        some += __shfl_xor_sync(~0u, some, step);
    }
    if (wide > 32) {
        if (threadIdx.x % 32 == 0) sum_of[warp] = sum, some_of[warp] = some;
        __syncthreads();
        if (column == 0) {
            sum = sum_of[warp] + sum_of[warp + 1], some = some_of[warp] + some_of[warp + 1];
            if (wide > 64)
                sum += sum_of[warp + 2] + sum_of[warp + 3],
                    some += some_of[warp + 2] + some_of[warp + 3];
        }
    }
    if (column || block >= count) return;
    filled[block] = some;
    if (key)
        key[block] = ~(u64)__double_as_longlong(
            isnan(sum) ? __longlong_as_double(0x7FF0000000000000ll) : sum);
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    flagged(const i64* __restrict__ order, i64 count, u8* __restrict__ flags)
{
    const i64 i = first_thread();
    if (i < count) flags[order[i]] = 1;
}

// out[i]: blocks before i that are kept: those with values that are not 0, and, unless it is null,
// a flag.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    kept(const int* __restrict__ filled, const u8* __restrict__ flags, int count, Counts* sums,
         Counts* found, u64* tiles, unsigned launch, int* __restrict__ out)
{
    u64 values = 0, places = 0;
    scan(count, tiles, launch, out, [&](int i) {
        const int some = flags && !flags[i] ? 0 : filled[i];
        values += some, places += some != 0;
        return some ? 1u : 0u;
    });
    handed(values, places, sums, found);
}

// at: what `kept` counted, (rows * columns + 1). from: which block of the dense matrix each one is.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    place_blocks(const int* __restrict__ at, int rows, int columns, int* __restrict__ row_ptr,
                 int* __restrict__ col_idx, int* __restrict__ from)
{
    const i64 i = first_thread(), count = (i64)rows * columns;
    if (i <= rows) row_ptr[i] = at[i * columns];
    if (i >= count) return;
    const int to = at[i];
    if (at[i + 1] != to) col_idx[to] = (int)(i % columns), from[to] = (int)i;
}

// A block of threads for each block of the matrix.
template <class T, int AS, class To>
__global__ void __launch_bounds__(THREADS)
    gather_blocks(const T* __restrict__ x, i64 m, i64 k, int high, int wide, int columns,
                  const int* __restrict__ from, To* __restrict__ val)
{
    const int block = from[blockIdx.x], area = high * wide;
    const i64 top = (i64)(block / columns) * high, left = (i64)(block % columns) * wide;
    To* to = val + (i64)blockIdx.x * area;
    for (int e = threadIdx.x; e < area; e += THREADS) {
        const i64 i = top + e / wide, j = left + e % wide;
        to[e] = i < m && j < k ? stored<AS>(x[i * k + j]) : To(0);
    }
}

// ---- N:M: of `rows` rows of a group, each vector of columns keeps those of the largest scores

// Sums of pairs of neighbours, of pairs of pairs, and so on: nm.py's `_fold`. W: a power of 2.
template <int W, class Leaf>
__device__ __forceinline__ double folded(const Leaf& leaf, i64 at)
{
    if constexpr (W == 1) return leaf(at);
    else return folded<W / 2>(leaf, at) + folded<W / 2>(leaf, at + W / 2);
}

// … of any number of them, where the last of an odd number joins the pair before it.
template <class Leaf>
__device__ __forceinline__ double folded_of(const Leaf& leaf, i64 width)
{
    double node[40];
    auto whole = [&](int level, i64 place) {  // of 2^level leaves
        const int step = level < 5 ? 0 : 5;
        for (i64 i = 0; i < 1ll << (level - step); ++i) {
            double x =
                step ? folded<32>(leaf, (place << level) + 32 * i) : leaf((place << level) + i);
            int l = 0;
            for (; i >> l & 1; ++l) x = node[l] + x;
            node[l] = x;
        }
        return node[level - step];
    };
    double sum = leaf(width - 1);
    int level = 0;
    for (i64 left = width; left > 1; left /= 2, ++level) {
        const bool odd = left % 2;
        sum = whole(level + odd, odd ? (left - 3) / 2 : left - 2) + sum;
    }
    return sum;
}

// scores: (rows, q). lanes: columns of a vector, W where that is a power of 2 up to 32, else W = 0.
// prune: sums of magnitudes, what is no number as infinity; else 1 where there is something but 0.
// by_rows: neighbouring threads have neighbouring rows.
template <int W>
__global__ void __launch_bounds__(THREADS)
    vector_scores(const float* __restrict__ x, i64 rows, i64 n, i64 row_stride, i64 column_stride,
                  i64 vector, i64 q, i64 lanes, int by_rows, int prune, double* __restrict__ scores)
{
    const i64 thread = first_thread();
    if (thread >= rows * q) return;
    const i64 row = by_rows ? thread % rows : thread / q, v = by_rows ? thread / rows : thread % q;
    const float* from = x + row * row_stride;
    auto leaf = [&](i64 lane) {
        const i64 j = v * vector + lane;
        return j < n ? fabs((double)from[j * column_stride]) : 0.0;
    };
    double score = 0;
    if (!prune)
        for (i64 lane = 0; lane < lanes && score == 0; ++lane) score = leaf(lane) != 0;
    else if constexpr (W) score = folded<W>(leaf, 0);
    else score = folded_of(leaf, lanes);
    scores[row * q + v] = isnan(score) ? __longlong_as_double(0x7FF0000000000000ll) : score;
}

// A thread has a vector of a group, ranks its rows, equal ones the lower first, and writes the
// first `taken` in their order, then the last row k - 1, `keep` in all. groups: all of `rows` rows,
// the first one group `begin` of the matrix. first: 2^63 - the first (group, vector) with more than
// keep scores over 0, 0 before; null: nobody asks.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    chosen_rows(const double* __restrict__ scores, i64 groups, i64 begin, int rows, int taken,
                int keep, i64 group, i64 q, i64 k, int* __restrict__ index, u64* first)
{
    const i64 thread = first_thread();
    if (thread >= groups * q) return;
    const i64 g = thread / q, v = thread % q;
    const double* score = scores + g * rows * q + v;
    int* to = index + (begin + g) * keep * q + v;
    int place = 0, used = 0;
    for (int r = 0; r < rows; ++r) {
        const double mine = score[r * q];
        used += mine > 0;
        if (place == taken) continue;
        int before = 0;
        for (int s = 0; s < rows && before < taken; ++s) {
            const double other = score[s * q];
            before += s < r ? other >= mine : other > mine;
        }
        if (before < taken) to[place++ * q] = (int)((begin + g) * group + r);
    }
    for (; place < keep; ++place) to[place * q] = (int)(k - 1);
    if (first && used > keep) atomicMax(first, (1ull << 63) - ((begin + g) * q + v));
}

// val: (w, n). Squares of 32 x 32, so that reading has its neighbours along rows (by_rows) or
// columns, and writing along columns. real: compressed rows that are not surplus; those are 0.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    chosen_values(const float* __restrict__ x, i64 n, i64 row_stride, i64 column_stride, i64 vector,
                  i64 q, i64 w, i64 real, int by_rows, const int* __restrict__ index,
                  float* __restrict__ val)
{
    __shared__ float square[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 across = (n + 31) / 32, i0 = blockIdx.x / across * 32, j0 = blockIdx.x % across * 32;
#pragma unroll
    for (int other = warp; other < 32; other += THREADS / 32) {
        const int di = by_rows ? lane : other, dj = by_rows ? other : lane;
        const i64 i = i0 + di, j = j0 + dj;
        square[di][dj] =
            i < real && j < n ? x[index[i * q + j / vector] * row_stride + j * column_stride] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int di = warp; di < 32; di += THREADS / 32)
        if (i0 + di < w && j0 + lane < n) val[(i0 + di) * n + j0 + lane] = square[di][lane];
}

// ---- rows of CSR: counted, where there is no to_idx, else written; what is 0 falls away

// A warp has a row. read(i, column, value): whether there is a value that is not 0 at place i, from
// 0 to size - 1.
template <class Read>
__device__ __forceinline__ int
row_of(const Read& read, i64 size, int at, int* __restrict__ to_idx, float* __restrict__ to_val)
{
    const int lane = threadIdx.x % 32;
    for (i64 from = 0; from < size; from += 32) {
        int column = 0;
        float value = 0;
        const bool some = from + lane < size && read(from + lane, column, value);
        const unsigned which = __ballot_sync(~0u, some);
        if (some && to_idx) {
            const int to = at + __popc(which & ((1u << lane) - 1));
            to_idx[to] = column, to_val[to] = value;
        }
        at += __popc(which);
    }
    return at;
}

// rows(r, …): `row_of` of row r. counts: entries of each row, to write; row_ptr: where rows begin,
// to read.
template <class Rows>
__device__ __forceinline__ void
all_rows(int m, int* __restrict__ counts, const int* __restrict__ row_ptr, int* to_idx,
         Counts* sums, Counts* found, const Rows& rows)
{
    u64 entries = 0;
    for (i64 r = first_thread() / 32; r < m; r += all_threads() / 32) {
        const int begin = to_idx ? row_ptr[r] : 0, end = rows((int)r, begin);
        if (to_idx || threadIdx.x % 32) continue;
        counts[r] = end;
        entries += end;
    }
    if (!to_idx) handed(entries, 0, sums, found);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    block_rows(const int* __restrict__ block_ptr, const int* __restrict__ block_idx,
               const T* __restrict__ val, int m, int high, int wide, int* counts,
               const int* row_ptr, int* to_idx, float* to_val, Counts* sums, Counts* found)
{
    all_rows(m, counts, row_ptr, to_idx, sums, found, [&](int r, int at) {
        const int begin = block_ptr[r / high];
        auto read = [&](i64 i, int& column, float& value) {
            const i64 block = begin + i / wide, inside = i % wide;
            const T x = val[(block * high + r % high) * wide + inside];
            column = (int)(block_idx[block] * (i64)wide + inside), value = number(x);
            return nonzero(x);
        };
        return row_of(read, (i64)(block_ptr[r / high + 1] - begin) * wide, at, to_idx, to_val);
    });
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    window_rows(const int* __restrict__ window_ptr, const int* __restrict__ window_idx,
                const T* __restrict__ val, int m, int window, i64 columns, int* counts,
                const int* row_ptr, int* to_idx, float* to_val, Counts* sums, Counts* found)
{
    all_rows(m, counts, row_ptr, to_idx, sums, found, [&](int r, int at) {
        const int begin = window_ptr[r / window];
        auto read = [&](i64 i, int& column, float& value) {
            const T x = val[r % window * columns + begin + i];
            column = window_idx[begin + i], value = number(x);
            return nonzero(x) && column >= 0;
        };
        return row_of(read, window_ptr[r / window + 1] - begin, at, to_idx, to_val);
    });
}

// 2:4; width: uint16 of metadata in a row.
template <class T>
__global__ void __launch_bounds__(THREADS)
    pair_rows(const u16* __restrict__ meta, const T* __restrict__ val, int m, int width,
              int* counts, const int* row_ptr, int* to_idx, float* to_val, Counts* sums,
              Counts* found)
{
    all_rows(m, counts, row_ptr, to_idx, sums, found, [&](int r, int at) {
        auto read = [&](i64 i, int& column, float& value) {
            const T x = val[r * (8ll * width) + i];
            const unsigned pair = meta[(i64)r * width + i / 8] >> (i / 2 % 4 * 4) & 15;
            column = (int)(i / 2 * 4) + (int)(i % 2 ? pair >> 2 : pair & 3), value = number(x);
            return nonzero(x);
        };
        return row_of(read, 8ll * width, at, to_idx, to_val);
    });
}

// N:M, whose columns are CSR's rows: a thread has one, since neighbouring ones lie side by side.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    vector_rows(const int* __restrict__ index, const float* __restrict__ val, i64 real, i64 n,
                i64 vector, i64 q, int* __restrict__ counts, const int* __restrict__ row_ptr,
                int* to_idx, float* to_val, Counts* sums, Counts* found)
{
    const i64 j = first_thread();
    u64 entries = 0;
    if (j < n) {
        int at = to_idx ? row_ptr[j] : 0;
        for (i64 i = 0; i < real; ++i) {
            const float x = val[i * n + j];
            if (!nonzero(x)) continue;
            if (to_idx) to_idx[at] = index[i * q + j / vector], to_val[at] = x;
            ++at;
        }
        if (!to_idx) counts[j] = at, entries = at;
    }
    if (!to_idx) handed(entries, 0, sums, found);
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    begins(const int* __restrict__ counts, int m, u64* tiles, unsigned launch,
           int* __restrict__ out)
{
    scan(m, tiles, launch, out, [&](int i) { return (unsigned)counts[i]; });
}

// ---- blocks in any order

// order: of (row, column), a stable sort of key; a block is the first of its place, or adds to it.
template <int = 0>
__global__ void __launch_bounds__(THREADS)
    block_keys(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int rows,
               int columns, int blocks, u64* __restrict__ key)
{
    const i64 b = first_thread();
    if (b >= blocks) return;
    int row = 0, to = rows;  // the last row that begins at it or before
    while (row + 1 < to) {
        const int middle = row + (to - row) / 2;
        if (row_ptr[middle] <= b) row = middle;
        else to = middle;
    }
    key[b] = (u64)row * columns + col_idx[b];
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    distinct(const u64* __restrict__ key, const i64* __restrict__ order, int blocks, u64* tiles,
             unsigned launch, int* __restrict__ out)
{
    scan(blocks, tiles, launch, out,
         [&](int i) { return !i || key[order[i]] != key[order[i - 1]] ? 1u : 0u; });
}

template <int = 0>
__global__ void __launch_bounds__(THREADS)
    place_distinct(const u64* __restrict__ key, const i64* __restrict__ order,
                   const int* __restrict__ at, int rows, int columns, int blocks,
                   int* __restrict__ row_ptr, int* __restrict__ col_idx)
{
    const i64 i = first_thread();
    if (i < blocks && at[i + 1] != at[i]) col_idx[at[i]] = (int)(key[order[i]] % columns);
    if (i > rows) return;
    int from = 0, to = blocks;  // the first block of row i or a later one
    while (from < to) {
        const int middle = from + (to - from) / 2;
        if (key[order[middle]] < (u64)i * columns) from = middle + 1;
        else to = middle;
    }
    row_ptr[i] = at[from];
}

// A block of threads for each block, of which the first of a place adds up all there, in float64;
// those that are alone stay as they are.
template <class T, int AS, class To>
__global__ void __launch_bounds__(THREADS)
    merge_blocks(const To* __restrict__ val, const i64* __restrict__ order,
                 const int* __restrict__ at, int blocks, int area, To* __restrict__ to)
{
    const int i = blockIdx.x, place = at[i];
    if (at[i + 1] == place) return;
    int end = i + 1;
    while (end < blocks && at[end + 1] == at[end]) ++end;
    for (int e = threadIdx.x; e < area; e += THREADS) {
        To x = val[order[i] * area + e];
        if (end > i + 1) {
            auto of = [&](int j) {
                return (double)number(reinterpret_cast<const T*>(val)[order[j] * area + e]);
            };
            double sum = of(i);
            for (int j = i + 1; j < end; ++j) sum += of(j);
            x = stored<AS>((float)sum);
        }
        to[(i64)place * area + e] = x;
    }
}
