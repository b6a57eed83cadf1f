// v3: two pipelines (NM-SpMM's V3: III-C2, Listing 4, Figs. 5 and 6), one in shared memory and one
// in registers.
//
//   step            0               1               2
//   columns   0, 1│ copy 2       │ copy 3       │ ...   PACKED: a step ahead of the rows that they
//                                                       name
//   A, B, D   0   │ copy 1       │ copy 2       │ ...   cp.async, into the buffers that are not
//                                                       being read
//   index     0   │             1│             2│       from shared memory to registers, a step at
//                                                       once
//   fragments     │ 1 2 3 ...   0│ 1 2 3 ...   0│       a compressed row ahead of the multiply-adds
//   FMA           │ 0 1 2 ...   ROWS-1          ...
//
// One barrier a step; the first fragment of a step is loaded before the last multiply-adds of the
// one before.
//
// Template:  BM, BN, TM, TN, SLOT  see spmm_tile.cuh
//            DEPTH, ROWS  rows of A^T and compressed rows of B in a step
//            PACKED       whether only the rows that col_info names are staged
//            ADD          split-K: blockIdx.z takes a share of the steps, and partial sums meet in
//                         C by atomicAdd, so C must be zero before the launch
//            VECTOR       whether C is stored 16 bytes at a time, for m a multiple of 4
// Launch:    grid (ceil(n / BN), ceil(m / BM), shares), BM * BN / (TM * TN) threads, 2 * 4 *
//            (capacity * BM + ROWS * BN + SYSTEM + (PACKED ? DEPTH : 0)) bytes of dynamic shared
//            memory

#include "cp_async.cuh"
#include "spmm_tile.cuh"

// COUNT ints, 16 bytes at a time where that divides them
template <int COUNT, int THREADS>
__device__ __forceinline__ void copy_ints(unsigned to, const int* from, bool run)
{
    constexpr int EACH = COUNT % 4 ? 1 : 4;
#pragma unroll
    for (int i = 0; i < COUNT / EACH; i += THREADS) {
        const int at = i + threadIdx.x;
        cp_async<4 * EACH, CA>(to + 4 * EACH * at, from + EACH * at, run && at < COUNT / EACH);
    }
}

template <int BM, int BN, int TM, int TN, int DEPTH, int ROWS, int SLOT, bool PACKED, bool ADD,
          bool VECTOR>
__global__ void
__launch_bounds__(PublishedTile<BM, BN, TM, TN>::THREADS, PublishedTile<BM, BN, TM, TN>::BLOCKS) v3(
    int m, int n, int k,
    int lda,       // sizes; lda floats from one column of A to the next, a multiple of 4
    int steps,     // ceil(k / DEPTH), at least gridDim.z
    int capacity,  // rows of A^T in a buffer: DEPTH, or PACKED the most that a step needs
    const float* __restrict__ A,    // m x k, column-major
    const float* __restrict__ val,  // (steps * ROWS) x (gridDim.x * BN), row-major, 0 where B ends
    const int* __restrict__ index,  // gridDim.x x steps x (BN / SLOT) x ROWS: rows of a buffer
    const int* __restrict__ col_info,  // PACKED: gridDim.x x steps x DEPTH: rows of A^T, then -1
    float* __restrict__ C)             // m x n, column-major
{
    using T = PublishedTile<BM, BN, TM, TN>;
    using F = Fragment<T, SLOT>;
    constexpr int ENTRIES = BN / SLOT * ROWS,
                  ROOM = (ENTRIES + 3) / 4 * 4;  // ints of a Ds, and of its buffer
    constexpr int TURNS =
        (DEPTH * BM / 4 + T::THREADS - 1) / T::THREADS;  // of the block, for rows of A^T
    constexpr int PREFETCH = ROWS < 16 ? ROWS : 16;      // rows whose index is in registers at once
    constexpr int WIDE = ROWS % 4 == 0 && PREFETCH % 4 == 0;
    extern __shared__ float4 shared[];
    const int part = capacity * BM + ROWS * BN;  // floats of a buffer: As, Bs
    float* const floats = reinterpret_cast<float*>(shared);
    int* const entries = reinterpret_cast<int*>(floats + 2 * part);  // two Ds
    int* const columns = entries + 2 * ROOM;                         // PACKED: two of DEPTH
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const T t;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const int first = (long long)steps * blockIdx.z / gridDim.z,
              last = (long long)steps * (blockIdx.z + 1) / gridDim.z;
    const size_t pitch = (size_t)gridDim.x * BN, at = (size_t)blockIdx.x * steps;
    float acc[TN][TM] = {};
    int column_of[TURNS];  // PACKED: of the next step, the rows of A^T that this thread copies

    auto copy_columns = [&](int step, int buffer) {
        copy_ints<DEPTH, T::THREADS>(base + 4 * (2 * part + 2 * ROOM + buffer * DEPTH),
                                     col_info + (at + step) * DEPTH, step < last);
    };
    auto read_columns = [&](int buffer) {
        for_each_float4<DEPTH, BM, T::THREADS>([&](int i, int, int turn, bool inside) {
            column_of[turn] = inside ? columns[buffer * DEPTH + i] : -1;
        });
    };
    auto copy = [&](int step, int buffer) {
        const unsigned as = base + 4 * buffer * part, bs = as + 4 * capacity * BM;
        const float* b = val + (size_t)step * ROWS * pitch + n0;
        for_each_float4<DEPTH, BM, T::THREADS>([&](int i, int column, int turn, bool inside) {
            const int row = PACKED ? column_of[turn] : step * DEPTH + i;
            const bool run = (PACKED ? row >= 0 : row < k) && inside && m0 + column < m;
            cp_async<16, CG>(
                as + 4 * (i * BM + column), A + ((size_t)row * lda + m0 + column), run);
        });
        for_each_float4<ROWS, BN, T::THREADS>([&](int i, int column, int, bool inside) {
            cp_async<16, CG>(bs + 4 * (i * BN + column), b + (i * pitch + column), inside);
        });
        copy_ints<ENTRIES, T::THREADS>(
            base + 4 * (2 * part + buffer * ROOM), index + (at + step) * ENTRIES, true);
    };
    auto arrive = [&] { cp_async_wait_all(), __syncthreads(); };
    int prefetched[F::PLACES][PREFETCH];
    auto load = [&](F& f, int p, int buffer) {
        if (p % PREFETCH == 0) {
#pragma unroll
            for (int q = 0; q < F::PLACES; ++q) {
                const int* d = entries + buffer * ROOM + F::entry(t, q) * ROWS + p;
#pragma unroll
                for (int i = 0; i < PREFETCH; i += WIDE ? 4 : 1) {
                    if (p + i >= ROWS) continue;
                    if (WIDE) {
                        const int4 x = *reinterpret_cast<const int4*>(d + i);
                        prefetched[q][i] = x.x, prefetched[q][i + 1] = x.y;
                        prefetched[q][i + 2] = x.z, prefetched[q][i + 3] = x.w;
                    } else {
                        prefetched[q][i] = d[i];
                    }
                }
            }
        }
        int place[F::PLACES];
#pragma unroll
        for (int q = 0; q < F::PLACES; ++q) place[q] = prefetched[q][p % PREFETCH];
        const float* As = floats + buffer * part;
        f.load(t, As, As + capacity * BM, p, place);
    };
    F f[2];
    auto multiply_but_last = [&](int buffer) {
#pragma unroll
        for (int p = 0; p + 1 < ROWS; ++p) {
            load(f[(p + 1) % 2], p + 1, buffer);
            f[p % 2].multiply(acc);
        }
    };

    if (PACKED) {
        copy_columns(first, 0);
        copy_columns(first + 1, 1);
        arrive();
        read_columns(0);
    }
    copy(first, 0);
    arrive();
    if (PACKED) read_columns(1);
    load(f[0], 0, 0);
    int buffer = 0;
#pragma unroll 1
    for (int step = first; step + 1 < last; ++step) {
        if (PACKED) copy_columns(step + 2, buffer);
        copy(step + 1, buffer ^ 1);
        multiply_but_last(buffer);
        arrive();  // the next step has landed, and everyone has read this one
        if (PACKED) read_columns(buffer);
        buffer ^= 1;
        if (ROWS % 2) f[1] = f[0];  // the last row
        load(f[0], 0, buffer);
        f[1].multiply(acc);
    }
    multiply_but_last(buffer);
    f[(ROWS - 1) % 2].multiply(acc);
    store_tile<VECTOR, ADD>(C, acc, t, m, n, m0, n0);
}
