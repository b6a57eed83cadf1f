// union_rows: rows in groups of R, each group times the rows of B that any of its rows names. CUDA cores, float32 as it is.
//
//   group of R = 4 rows           columns of the union     0    2    7    9
//      row 4g      a . b . .      values, R of each        a    b    .    .        one load of B feeds R rows:
//      row 4g + 1  . . c . d                               .    c    .    d          acc[r] += value[r] * B[column]
//      row 4g + 2  . . . e .                               .    .    e    .
//      row 4g + 3  f . . . .                               f    .    .    .
//
// A row-by-row kernel is bound by what L2 and L1 deliver of B: 4 bytes for 2 operations. Here a row of B is fetched once for R rows,
// at the price of multiplying zeros, which is free up to R = 8: 8 cycles of multiply-adds for what L2 delivers in 12.
//
// A task is a group or a part of a long one (cut_windows.cuh). A warp has every WARPS-th of `per_block` tasks, for 32 * VEC * T columns
// of C: neighbours in a block share rows of B through L1, and all tasks of a panel of columns come before the next panel's, whose B may
// stay in L2. What a warp needs next is under way while it multiplies:
//
//   task i + 2 ──► its columns and values, 32 at a time, a lane each ──► shared memory ──► rows of B, UNROLL at a time
//
// Where any row of a group names an infinite or NaN row of B, all rows of the group become NaN.
//
// Template:  R       rows of a group: 1, 2, 4 or 8
//            VEC     float32 values of one load of B: 1, 2 or 4; must divide n
//            T       such loads for a row of B
//            WARPS   of a block
//            UNROLL  rows of B that are asked for together
#include "cut_windows.cuh"
#include "vec.cuh"

__device__ __forceinline__ void add(float* to, const vec<4>& x) { add4(to, {x.at[0], x.at[1], x.at[2], x.at[3]}); }
__device__ __forceinline__ void add(float* to, const vec<2>& x) { atomicAdd(to, x.at[0]), atomicAdd(to + 1, x.at[1]); }
__device__ __forceinline__ void add(float* to, const vec<1>& x) { atomicAdd(to, x.at[0]); }

template <int R, int VEC, int T, int WARPS, int UNROLL>
__global__ void __launch_bounds__(32 * WARPS, 20 / WARPS)
union_rows(const int4* __restrict__ task, int tasks, int per_block,                // cut_windows.cuh, of groups
           const int* __restrict__ col_idx, const vec<R>* __restrict__ val,        // columns of the unions, R values each
           const int* __restrict__ order,                                          // row_of
           const float* __restrict__ b, float* __restrict__ c, int m, int n)       // row-major
{
    static_assert(R == 1 || R == 2 || R == 4 || R == 8, "values of a column are loaded by whole units");
    static_assert(32 % UNROLL == 0, "a chunk of 32 columns is cut into whole groups of UNROLL");
    __shared__ int column[WARPS][32];
    __shared__ vec<R> value[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks = (tasks + per_block - 1) / per_block, first = blockIdx.x % blocks * per_block;
    const int last = min(tasks, first + per_block), right = blockIdx.x / blocks * (32 * VEC * T) + lane * VEC;
    const float* from[T];  // beyond the row: anything, not stored
#pragma unroll
    for (int t = 0; t < T; ++t) from[t] = b + min(right + 32 * VEC * t, n - VEC);
    int which = first + warp;
    if (which >= last) return;

    const auto task_at = [&](int i) { return __ldg(task + min(i, tasks - 1)); };
    int next_column = 0;
    vec<R> next_value = {};
    const auto look = [&](int at, int end) {  // a column behind the last one has values 0
        const bool there = at + lane < end;
        next_column = there ? __ldg(col_idx + at + lane) : 0;
        next_value = there ? val[at + lane] : vec<R>{};
    };
    int4 it = task_at(which), then = task_at(which + WARPS);
    int at = it.y;
    look(at, it.z);
    vec<VEC> acc[R][T] = {};
    for (;;) {
        __syncwarp();
        column[warp][lane] = next_column, value[warp][lane] = next_value;
        __syncwarp();
        const int count = min(32, it.z - at);
        const bool ends = at + 32 >= it.z;
        ends ? look(then.y, then.z) : look(at + 32, it.z);
        for (int i = 0; i < count; i += UNROLL) {
            vec<VEC> x[UNROLL][T];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const size_t down = (size_t)column[warp][i + u] * n;
#pragma unroll
                for (int t = 0; t < T; ++t)
                    x[u][t] = i + u < count ? load(reinterpret_cast<const vec<VEC>*>(from[t] + down)) : vec<VEC>{};
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const vec<R> w = value[warp][i + u];
#pragma unroll
                for (int r = 0; r < R; ++r)
#pragma unroll
                    for (int t = 0; t < T; ++t) fma(acc[r][t], w.at[r], x[u][t]);
            }
        }
        at += 32;
        if (!ends) continue;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int p = it.x * R + r, row = p < m ? row_of(order, p) : m;
#pragma unroll
            for (int t = 0; t < T; ++t) {
                const int here = right + 32 * VEC * t;
                float* to = c + (size_t)row * n + here;
                if (row < m && here < n) {
                    if (it.w < 0) *reinterpret_cast<vec<VEC>*>(to) = acc[r][t];
                    else add(to, acc[r][t]);
                }
#pragma unroll
                for (int v = 0; v < VEC; ++v) acc[r][t].at[v] = 0.f;  // an assignment of {} would load zeros
            }
        }
        which += WARPS;
        if (which >= last) return;
        it = then, at = it.y, then = task_at(which + WARPS);
    }
}
