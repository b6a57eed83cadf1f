// What a thread holds of a product: TM x TN accumulators and, for one compressed row, TM values of
// A and TN of B.
//
//   C (m x n) = A (m x k) . B (k x n, vector-wise N:M along k),  float32, A and C column-major
//
//     shared memory of a step                  a warp's lanes with TN = 8: 8 x 4, in pairs (zigzag)
//       As [DEPTH][BM]  rows of A^T: whole windows      row of C   0    1    2  ...  7  * 4, + 32 c
//       Bs [ROWS][BN]   compressed rows of B            column 0   0    2    4  ...  14
//       index [BN / SLOT][ROWS]  rows of As             column 4   1    3    5  ...  15
//                                                       column 8  16   18  ... 30       + 16 d
//
// A warp computes TM TN x 32 of C. Where SLOT = 32 columns share their indices, all lanes read the
// same row of As, and one address serves TM / 4 loads. A 16-byte load serves sixteen lanes in a
// wavefront if each has a partner, one or two lanes away, that reads the same address: the zigzag
// gives every lane one for As and one for Bs.
//
// Template:  BM, BN   rows and columns of C that a block computes
//            TM, TN   of them a thread: TM / 4 runs of 4 rows, 4 TN apart, and TN / 4 runs of 4
//                     columns, 128 / TN apart
//            SLOT     columns that share an entry of index: 32, or 4, and then each run of columns
//                     has rows of its own
#pragma once

#include "lds.cuh"

template <int BM_, int BN_, int TM_, int TN_, int SLOT_>
struct FragmentTile {
    static constexpr int BM = BM_, BN = BN_, TM = TM_, TN = TN_, SLOT = SLOT_;
    static constexpr int ACROSS = 32 / TN,
                         DOWN = TN;  // lanes of a warp along columns and along rows of C
    static constexpr int WARPS_N = BN / 32, WARPS = BM / (DOWN * TM) * WARPS_N,
                         THREADS = 32 * WARPS;
    static constexpr int RUNS = SLOT == 4 ? TN / 4 : 1;  // indices that a thread follows
    static_assert(TM % 4 == 0 && (TN == 8 || TN == 16),
                  "a thread computes runs of 4 rows, and 8 or 16 columns");
    static_assert(BM % (DOWN * TM) == 0 && BN % 32 == 0, "a block is whole warps of TM TN x 32");
    static_assert(SLOT == 4 || SLOT == 32,
                  "a warp's 32 columns share their rows of A, or four neighbours do");
    int m, n;  // the thread's first row and column within the block's tile

    __device__ FragmentTile()
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        m = warp / WARPS_N * DOWN * TM + lane / 2 % DOWN * 4;
        n = warp % WARPS_N * 32 + (lane % 2 + (ACROSS == 4 ? lane / 16 * 2 : 0)) * 4;
    }
};

// Four entries of index for every run: rows of As of four compressed rows.
template <class T>
struct Rows {
    int at[T::RUNS][4];

    template <int ROWS>
    __device__ __forceinline__ void
    load(unsigned index)  // address of the thread's first slot, from a compressed row on
    {
#pragma unroll
        for (int r = 0; r < T::RUNS; ++r) {
            const float4 x =
                load_shared_float4(index + r * T::ACROSS * ROWS * 4);  // slots are four columns
            at[r][0] = __float_as_int(x.x), at[r][1] = __float_as_int(x.y);
            at[r][2] = __float_as_int(x.z), at[r][3] = __float_as_int(x.w);
        }
    }
};

template <class T>
struct Fragment {
    float a[T::RUNS][T::TM], b[T::TN];

    // As, Bs: addresses of the thread's row and column; rows.at[..][s]: which row of As.
    __device__ __forceinline__ void load(unsigned As, unsigned Bs, const Rows<T>& rows, int s)
    {
#pragma unroll
        for (int r = 0; r < T::RUNS; ++r)
#pragma unroll
            for (int c = 0; c < T::TM; c += 4) {
                const float4 x = load_shared_float4(As + (rows.at[r][s] * T::BM + T::DOWN * c) * 4);
                a[r][c] = x.x, a[r][c + 1] = x.y, a[r][c + 2] = x.z, a[r][c + 3] = x.w;
            }
#pragma unroll
        for (int d = 0; d < T::TN; d += 4) {
            const float4 x = load_shared_float4(Bs + T::ACROSS * d * 4);
            b[d] = x.x, b[d + 1] = x.y, b[d + 2] = x.z, b[d + 3] = x.w;
        }
    }

    // acc[j][i] += b[j] a[i]. Down one row and up the next, so that of three operands one is the
    // same as in the instruction before, which the register file's reuse cache serves: with BANKS
    // it lasts for eight of them, else a value of B lasts for TM.
    template <bool BANKS>
    __device__ __forceinline__ void multiply(float (&acc)[T::TN][T::TM]) const
    {
        constexpr bool KEEP_A = BANKS && T::TN == 8;
        constexpr int OUTER = KEEP_A ? T::TM : T::TN, INNER = KEEP_A ? T::TN : T::TM;
#pragma unroll
        for (int o = 0; o < OUTER; ++o)
#pragma unroll
            for (int x = 0; x < INNER; ++x) {
                const int in = o % 2 ? INNER - 1 - x : x, i = KEEP_A ? o : in, j = KEEP_A ? in : o;
                acc[j][i] = fmaf(a[T::RUNS == 1 ? 0 : j / 4][i], b[j], acc[j][i]);
            }
    }
};

// acc += the product of a stage: `rows` of its ROWS compressed rows, fragments loaded one row
// ahead. a, b, index: the thread's addresses. The loop's body is UNROLL rows, of which `rows` is a
// multiple; all are, where it is ROWS.
template <class T, int ROWS, int UNROLL, bool BANKS>
__device__ __forceinline__ void
multiply_stage(float (&acc)[T::TN][T::TM], unsigned a, unsigned b, unsigned index, int rows = ROWS)
{
    if constexpr (UNROLL == ROWS) rows = ROWS;
    Fragment<T> f[2];
    Rows<T> now, next;
    now.template load<ROWS>(index);
    f[0].load(a, b, now, 0);
#pragma unroll 1
    for (int u = 0; u < rows; u += UNROLL)
#pragma unroll
        for (int v = 0; v < UNROLL; v += 4) {
            const int q = u + v;
            const bool more = v + 4 < UNROLL || q + 4 < rows;
            if (more) next.template load<ROWS>(index + (q + 4) * 4);
#pragma unroll
            for (int s = 0; s < 4; ++s) {
                if (s < 3) f[(s + 1) % 2].load(a, b + (q + s + 1) * T::BN * 4, now, s + 1);
                else if (more) f[0].load(a, b + (q + 4) * T::BN * 4, next, 0);
                f[s % 2].template multiply<BANKS>(acc);
            }
            now = next;
        }
}
