// What the published kernels share: hierarchical blocking (NM-SpMM, III-B, Table I), and how a step
// lies in memory.
//
//   C (m x n) = A (m x k) . B (k x n, vector-wise N:M along k),  float32, A and C column-major.
//
//   block: BM x BN of C              a step: `windows` pruning windows, DEPTH = windows * M,
//                                    ROWS = windows * N
//     warp: WM x 32                    As [DEPTH][BM]        rows of A^T; packed: only those needed
//       thread: TM x TN, acc += a x b  Bs [ROWS][BN]         values of B
//                                      Ds [BN / SLOT][ROWS]  which row of As a row of Bs multiplies
//
// Template:  BM, BN  rows and columns of C that a block computes
//            TM, TN  those that a thread computes, 4 or 8
//            SLOT    neighbouring columns with one entry of Ds: 32, a warp's, or 4
#pragma once

#include "float4.cuh"

// Where a thread works. Its rows are m...m+3, and with TM = 8 those 4 * LM further on; its columns
// likewise. Lanes form a grid of LM x LN, dealt in pairs that read the same 16 bytes (LM = 8, as in
// the authors' code; lanes 0 to 15):
//
//           m  0  4  8 12 16 20 24 28
//   n  0       0  2  4  6  8 10 12 14      A 16-byte read of shared memory serves sixteen lanes in
//   n  4       1  3  5  7  9 11 13 15      a wavefront where every lane has a partner with the same
//                                          address, otherwise eight.
template <int BM_, int BN_, int TM_, int TN_>
struct PublishedTile {
    static constexpr int BM = BM_, BN = BN_, TM = TM_, TN = TN_;
    static constexpr int WM = TM * TN, LM = WM / TM,
                         LN = 32 / TN;  // of a warp: rows, lanes along rows and columns
    static constexpr int THREADS = BM * BN / (TM * TN);
    static_assert((TM == 4 || TM == 8) && (TN == 4 || TN == 8),
                  "a thread has 4 or 8 rows and columns");
    static_assert(BM % WM == 0 && BN % 32 == 0,
                  "whole warps make a block: choose BM and BN as their multiples");
    // For __launch_bounds__: 8 blocks an SM leave small threads 128 registers, 6 medium ones 168.
    // Without a number (0) the compiler spills some of theirs to fit one block more.
    static constexpr int BLOCKS = TM * TN == 16 ? 8 : TM * TN == 32 ? 6 : 0;
    int m, n;  // within the block

    __device__ PublishedTile()
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        m = warp % (BM / WM) * WM + lane % (2 * LM) / 2 * 4;
        n = warp / (BM / WM) * 32 + (lane / (2 * LM) * 2 + lane % 2) * 4;
    }
    // Of the thread's i-th row and j-th column
    __device__ __forceinline__ int row(int i) const { return m + i / 4 * (4 * LM) + i % 4; }
    __device__ __forceinline__ int column(int j) const { return n + j / 4 * (4 * LN) + j % 4; }
};

// ROWS x COLUMNS floats, 16 bytes a thread and turn: calls body(row, column, turn, inside) for
// each; rows from ROWS on are not `inside`, and the compiler knows that there are none where a turn
// of the block divides ROWS.
template <int ROWS, int COLUMNS, int THREADS, class Body>
__device__ __forceinline__ void for_each_float4(Body body)
{
    constexpr int STRIDE = THREADS / (COLUMNS / 4), TURNS = (ROWS + STRIDE - 1) / STRIDE;
    const int row = threadIdx.x / (COLUMNS / 4), column = threadIdx.x % (COLUMNS / 4) * 4;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
        body(turn * STRIDE + row, column, turn, ROWS % STRIDE == 0 || turn * STRIDE + row < ROWS);
}

// Copies COUNT ints by the block.
template <int COUNT, int THREADS>
__device__ __forceinline__ void load_ints(int* to, const int* from)
{
#pragma unroll
    for (int i = 0; i < COUNT; i += THREADS)
        if (COUNT - i >= THREADS || i + (int)threadIdx.x < COUNT)
            to[i + threadIdx.x] = from[i + threadIdx.x];
}

// One compressed row of B and what it multiplies, in registers.
template <class T, int SLOT>
struct Fragment {
    // Entries of Ds for a thread's columns: one where a warp shares it, else one for every four
    // columns.
    static constexpr int PLACES = SLOT % 32 == 0 ? 1 : T::TN / 4;
    float a[PLACES][T::TM], b[T::TN];

    // The thread's q-th entry of Ds for compressed row p, at Ds[entry(t, q) * ROWS + p]
    static __device__ __forceinline__ int entry(const T& t, int q)
    {
        return t.column(4 * q) / SLOT;
    }

    // row: of Bs; place[q]: rows of As
    __device__ __forceinline__ void load(const T& t, const float* As, const float* Bs, int row,
                                         const int (&place)[PLACES])
    {
#pragma unroll
        for (int j = 0; j < T::TN; j += 4) put(&b[j], load4(&Bs[row * T::BN + t.column(j)]));
#pragma unroll
        for (int q = 0; q < PLACES; ++q)
#pragma unroll
            for (int i = 0; i < T::TM; i += 4)
                put(&a[q][i], load4(&As[place[q] * T::BM + t.row(i)]));
    }

    // acc[j][i] += a[i] * b[j]: TM * TN multiply-adds
    __device__ __forceinline__ void multiply(float (&acc)[T::TN][T::TM]) const
    {
#pragma unroll
        for (int j = 0; j < T::TN; ++j)
#pragma unroll
            for (int i = 0; i < T::TM; ++i)
                acc[j][i] = fmaf(b[j], a[PLACES == 1 ? 0 : j / 4][i], acc[j][i]);
    }

private:
    static __device__ __forceinline__ void put(float* to, const float4& x)
    {
        to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
    }
};

// One step of a block, with an entry of Ds looked up in shared memory for every row (Listing 2).
template <class T, int ROWS, int SLOT>
__device__ __forceinline__ void multiply_step(float (&acc)[T::TN][T::TM], const T& t,
                                              const float* As, const float* Bs, const int* Ds)
{
    using F = Fragment<T, SLOT>;
#pragma unroll
    for (int p = 0; p < ROWS; ++p) {
        int place[F::PLACES];
#pragma unroll
        for (int q = 0; q < F::PLACES; ++q) place[q] = Ds[F::entry(t, q) * ROWS + p];
        F f;
        f.load(t, As, Bs, p, place);
        f.multiply(acc);
    }
}

// Writes the block's part of C (m x n), or adds it with ADD. VECTOR: 16 bytes at a time, for m a
// multiple of 4.
template <bool VECTOR, bool ADD, class T>
__device__ __forceinline__ void
store_tile(float* C, const float (&acc)[T::TN][T::TM], const T& t, int m, int n, int m0, int n0)
{
#pragma unroll
    for (int j = 0; j < T::TN; ++j) {
        const int column = n0 + t.column(j);
        if (column >= n) continue;
#pragma unroll
        for (int i = 0; i < T::TM; i += 4) {
            const int row = m0 + t.row(i);
            float* to = C + (size_t)column * m + row;
            if (VECTOR && !ADD) {
                if (row < m)
                    store4(to, make_float4(acc[j][i], acc[j][i + 1], acc[j][i + 2], acc[j][i + 3]));
                continue;
            }
#pragma unroll
            for (int l = 0; l < 4; ++l) {
                if (row + l >= m) continue;
                if (ADD) atomicAdd(to + l, acc[j][i + l]);
                else to[l] = acc[j][i + l];
            }
        }
    }
}
