// What the kernels of this system share: one block's BM x BN tile of C, 4 x 4 of it a thread (the
// report, section 3.2).
//
//   C (m x n) = A (m x k) . B (k x n, N:M sparse along k),
//   float32, A and C column-major, values and indices of B row-major.
//
//     shared memory                         registers of thread (t_m, t_n)
//       As [BK][BM]  gathered rows of A^T     acc[4][4] += b[4] x a[4]     for every compressed row
//       Bs [BK][BN]  values of B
//
// Template:  BM, BN  rows and columns of C that a block computes, multiples of 32
//            BK      compressed rows of B in a step; the block has BM/4 x BN/4 threads
#pragma once

#include "float4.cuh"

// Where a thread works. Two ways to deal the 4 x 4 tiles to the lanes of a warp (four of its eight
// rows of lanes shown):
//
//   usual   t_m 0 1 2 3 4 5 6 7      ZIGZAG   t_m 0 1 2 3 4 5 6 7
//   t_n 0       0 1 2 3 4 5 6 7      t_n 0        0 2 4 6 8 .. .. 14
//   t_n 1       8 9 ..               t_n 1        1 3 5 7 9 .. .. 15
//
// Both read and write neighbouring float4 of A and C side by side. A 16-byte read of shared memory
// serves eight lanes in a wavefront, and sixteen where every lane has a partner, one or two lanes
// away, that reads the same address. Usual: reads of Bs have partners, reads of As have none.
// ZIGZAG: both have.
template <int BM, int BN, bool ZIGZAG = false>
struct Tile {
    static_assert(BM % 32 == 0 && BN % 32 == 0,
                  "a tile has whole rows of 32 floats: choose BM and BN as multiples of 32");
    static constexpr int THREADS = (BM / 4) * (BN / 4);
    int m0, n0;    // first row and column of the block's tile
    int t_m, t_n;  // first row and column of the thread's 4 x 4 within it

    __device__ Tile() : m0(blockIdx.x * BM), n0(blockIdx.y * BN)
    {
        const int lane = threadIdx.x;
        t_m = 4 * (ZIGZAG ? lane / 2 % (BM / 4) : lane % (BM / 4));
        t_n = 4 * (ZIGZAG ? lane % 2 + lane / (BM / 2) * 2 : lane / (BM / 4));
    }
};

// rows x COLUMNS floats, 16 bytes a thread and turn: calls body(row, column, turn) for every float4
// of them. A full tile takes a path without conditions, so that the loads of all turns can be in
// flight together.
template <int ROWS, int COLUMNS, int THREADS, class Body>
__device__ __forceinline__ void for_each_float4(int rows, Body body)
{
    constexpr int STRIDE = THREADS / (COLUMNS / 4);  // rows that the block covers at once
    static_assert(ROWS % STRIDE == 0,
                  "a turn of the block must divide the tile: choose BK as a multiple of it");
    const int row = threadIdx.x / (COLUMNS / 4), column = threadIdx.x % (COLUMNS / 4) * 4;
    if (rows >= ROWS) {
#pragma unroll
        for (int turn = 0; turn < ROWS / STRIDE; ++turn) body(turn * STRIDE + row, column, turn);
    } else {
#pragma unroll
        for (int turn = 0; turn < ROWS / STRIDE; ++turn)
            if (turn * STRIDE + row < rows) body(turn * STRIDE + row, column, turn);
    }
}

// One thread's part of a step in registers: of A the rows that the indices name, of B the values.
//
// The index is that of the block's FIRST column: right only where all BN columns share their
// indices (vector-wise N:M with a vector length that BN divides). All indices are requested before
// the first row of A, and everything before anything is stored: two round trips to memory a step.
template <int BM, int BN, int BK>
struct Step {
    static constexpr int THREADS = Tile<BM, BN>::THREADS;
    float4 a[BK * BM / 4 / THREADS], b[BK * BN / 4 / THREADS];
    int k[BK * BM / 4 / THREADS];

    __device__ __forceinline__ void load_index(const int* index, int n, int rows)
    {
        for_each_float4<BK, BM, THREADS>(
            rows, [&](int i, int, int turn) { k[turn] = index[(size_t)i * n]; });
    }
    __device__ __forceinline__ void load_a(const float* A, int m, int rows)
    {
        for_each_float4<BK, BM, THREADS>(rows, [&](int, int column, int turn) {
            a[turn] = load4(&A[(size_t)k[turn] * m + column]);
        });
    }
    __device__ __forceinline__ void load_b(const float* val, int n, int rows)
    {
        for_each_float4<BK, BN, THREADS>(rows, [&](int i, int column, int turn) {
            b[turn] = load4(&val[(size_t)i * n + column]);
        });
    }
    __device__ __forceinline__ void load(const float* A, const float* val, const int* index, int m,
                                         int n, int rows)
    {
        load_index(index, n, rows);
        load_b(val, n, rows);
        load_a(A, m, rows);
    }
    __device__ __forceinline__ void store_a(float* As, int rows) const
    {
        for_each_float4<BK, BM, THREADS>(
            rows, [&](int i, int column, int turn) { store4(&As[i * BM + column], a[turn]); });
    }
    __device__ __forceinline__ void store_b(float* Bs, int rows) const
    {
        for_each_float4<BK, BN, THREADS>(
            rows, [&](int i, int column, int turn) { store4(&Bs[i * BN + column], b[turn]); });
    }
};

// acc[j][i] += b[j] * a[i]: 16 multiply-adds for 32 bytes from shared memory.
__device__ __forceinline__ void outer_product(float (&acc)[4][4], const float4& a, const float4& b)
{
    const float x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(y[j], x[i], acc[j][i]);
}

template <int BM, int BN, bool ZIGZAG>
__device__ __forceinline__ void multiply(float (&acc)[4][4], const float* As, const float* Bs,
                                         const Tile<BM, BN, ZIGZAG>& t, int rows)
{
#pragma unroll 8
    for (int i = 0; i < rows; ++i)
        outer_product(acc, load4(&As[i * BM + t.t_m]), load4(&Bs[i * BN + t.t_n]));
}

template <int BM, int BN, bool ZIGZAG>
__device__ __forceinline__ void
store_tile(float* C, const float (&acc)[4][4], const Tile<BM, BN, ZIGZAG>& t, int m)
{
#pragma unroll
    for (int j = 0; j < 4; ++j)
        store4(&C[(size_t)(t.n0 + t.t_n + j) * m + t.m0 + t.t_m],
               make_float4(acc[j][0], acc[j][1], acc[j][2], acc[j][3]));
}
