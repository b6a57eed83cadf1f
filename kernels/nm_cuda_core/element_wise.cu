// element_wise: right for every N:M pattern, also where each column has indices of its own (the 2:4
// of the report's Fig. 1).
//
// A compressed row no longer stands for one row of A: its columns take theirs from anywhere in the
// group. So a block stages BK consecutive rows of A, whole groups, without a gather, and every
// thread looks up the four rows of its columns in shared memory:
//
//     shared memory                                          per thread and compressed row
//       As  [BK][BM]  consecutive rows of A^T                  1 int4   offsets of four rows in As
//       Bs  [BK][BN]  values        (BK KEEP/GROUP rows)       1 float4 four values
//       Ks  [BK][BN]  offsets in As (BK KEEP/GROUP rows)       4 float4 of A instead of 1
//
// Template:  BM, BN       see tile.cuh
//            BK           rows of A (not compressed rows) in a step, whole groups
//            KEEP, GROUP  the pattern N:M: KEEP of every GROUP rows

#include "tile.cuh"

template <int BM, int BN, int BK, int KEEP, int GROUP>
__global__ void __launch_bounds__(Tile<BM, BN>::THREADS, BK / GROUP * KEEP > 48 ? 4 : 6)
    element_wise(
        int m, int n, int w, int k,     // sizes; w compressed rows of B, k rows
        const float* __restrict__ A,    // m x k, column-major
        const float* __restrict__ val,  // w x n, row-major
        const int* __restrict__ index,  // w x n, row-major: the row of B that a value comes from
        float* __restrict__ C)          // m x n, column-major
{
    static_assert(BK % GROUP == 0 && KEEP <= GROUP,
                  "a step has whole groups: choose BK as a multiple of GROUP");
    using T = Tile<BM, BN, true>;
    constexpr int STEP = BK / GROUP * KEEP,
                  ROWS = (STEP + 7) / 8 * 8;  // compressed rows of a step; a turn loads 8
    __shared__ alignas(16) float As[BK * BM], Bs[ROWS * BN];
    __shared__ alignas(16) int Ks[ROWS * BN];
    const T t;
    float acc[4][4] = {};

    for (int k0 = 0, w0 = 0; w0 < w; k0 += BK, w0 += STEP) {
        const int rows = min(STEP, w - w0), rows_a = min(BK, k - k0);
        const size_t at = (size_t)w0 * n + t.n0;
        float4 a[BK * BM / 4 / T::THREADS], b[ROWS * BN / 4 / T::THREADS];
        int4 r[ROWS * BN / 4 / T::THREADS];
        __syncthreads();
        for_each_float4<BK, BM, T::THREADS>(rows_a, [&](int i, int column, int turn) {
            a[turn] = load4(&A[(size_t)(k0 + i) * m + t.m0 + column]);
        });
        for_each_float4<ROWS, BN, T::THREADS>(rows, [&](int i, int column, int turn) {
            b[turn] = load4(&val[at + (size_t)i * n + column]);
            r[turn] = *reinterpret_cast<const int4*>(&index[at + (size_t)i * n + column]);
        });
        for_each_float4<BK, BM, T::THREADS>(
            rows_a, [&](int i, int column, int turn) { store4(&As[i * BM + column], a[turn]); });
        for_each_float4<ROWS, BN, T::THREADS>(rows, [&](int i, int column, int turn) {
            store4(&Bs[i * BN + column], b[turn]);
            *reinterpret_cast<int4*>(&Ks[i * BN + column]) =
                make_int4((r[turn].x - k0) * BM, (r[turn].y - k0) * BM, (r[turn].z - k0) * BM,
                          (r[turn].w - k0) * BM);
        });
        __syncthreads();

#pragma unroll 4
        for (int i = 0; i < rows; ++i) {
            const float4 b = load4(&Bs[i * BN + t.t_n]);
            const int4 r = *reinterpret_cast<const int4*>(&Ks[i * BN + t.t_n]);
            const float value[4] = {b.x, b.y, b.z, b.w};
            const int offset[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4 a = load4(&As[offset[j] + t.t_m]);
                const float x[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
                for (int l = 0; l < 4; ++l) acc[j][l] = fmaf(value[j], x[l], acc[j][l]);
            }
        }
    }
    store_tile(C, acc, t, m);
}
