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
// of C: neighbours in a block share rows of B through L1, blocks that run side by side through L2, the closer the shorter they are, and
// all tasks of a panel of columns come before the next panel's, whose B may stay in L2. Columns and values are loaded 32 at a time, a
// lane each, and handed round through shared memory.
//
// Of a group that is cut the first part stores its rows of C and the others, later tasks, add to them when it has (handover.cuh): a
// launch that clears them beforehand would cost 2 to 3 us. A warp waits for earlier tasks only, and blocks begin in their order.
// Of three parts the second and the third add as they come, so last bits of C change from launch to launch. Given Slots, parts
// are added up in one order instead, and nobody waits (in_order.cuh).
//
// Where any row of a group names an infinite or NaN row of B, all rows of the group become NaN.
//
// Template:  R       rows of a group: 1, 2, 4 or 8
//            VEC     float32 values of one load of B: 1, 2 or 4; must divide n
//            T       such loads for a row of B
//            WARPS   of a block; BLOCKS of them share an SM
//            UNROLL  rows of B that are asked for together
//            InOrder none, or the types of what Slots has
#include "cut_windows.cuh"
#include "handover.cuh"
#include "in_order.cuh"
#include "vec.cuh"

__device__ __forceinline__ void add(float* to, const vec<4>& x) { add4(to, {x.at[0], x.at[1], x.at[2], x.at[3]}); }
__device__ __forceinline__ void add(float* to, const vec<2>& x) { atomicAdd(to, x.at[0]), atomicAdd(to + 1, x.at[1]); }
__device__ __forceinline__ void add(float* to, const vec<1>& x) { atomicAdd(to, x.at[0]); }

template <int R, int VEC, int T, int WARPS, int BLOCKS, int UNROLL, class... InOrder>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
union_rows(const int4* __restrict__ task, int tasks, int per_block,           // cut_windows.cuh, of groups
           const int* __restrict__ col_idx, const vec<R>* __restrict__ val,   // columns of the unions, R values each
           const int* __restrict__ order, const int* __restrict__ others,     // row_of; parts of a cut group but the first
           Handover* __restrict__ handovers, int cuts,                        // for each panel one of each cut group
           const float* __restrict__ b, float* __restrict__ c, int m, int n,  // row-major
           InOrder... in_order)  // nothing, or what Slots has
{
    constexpr bool IN_ORDER = sizeof...(InOrder) > 0;
    constexpr int TOGETHER = R < UNROLL ? UNROLL / R : 1;  // parts that are asked for together
    static_assert(R == 1 || R == 2 || R == 4 || R == 8, "values of a column are loaded by whole units");
    static_assert(32 % UNROLL == 0, "a chunk of 32 columns is cut into whole groups of UNROLL");
    __shared__ unsigned columns[WARPS][32];  // where rows of B begin, in loads
    __shared__ vec<R> values[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned* const column = columns[warp];
    vec<R>* const value = values[warp];
    const int blocks = (tasks + per_block - 1) / per_block, first = blockIdx.x % blocks * per_block;
    const int last = min(tasks, first + per_block);
    const unsigned panel = blockIdx.x / blocks;
    const int right = panel * (32 * VEC * T) + lane * VEC;
    const vec<VEC>* from[T];  // beyond the row: anything, not stored
#pragma unroll
    for (int t = 0; t < T; ++t) from[t] = reinterpret_cast<const vec<VEC>*>(b + min(right + 32 * VEC * t, n - VEC));
    const unsigned pitch = n / VEC;

    for (int which = first + warp; which < last; which += WARPS) {
        const int4 it = __ldg(task + which);
        vec<VEC> acc[R][T] = {};
        for (int at = it.y; at < it.z; at += 32) {
            const int count = min(32, it.z - at);
            __syncwarp();  // all have read what is overwritten
            column[lane] = lane < count ? __ldg(col_idx + at + lane) * pitch : 0;
#pragma unroll
            for (int r = 0; r < R; ++r) value[lane].at[r] = 0.f;
            if (lane < count) value[lane] = val[at + lane];
            __syncwarp();
            for (int i = 0; i < count; i += UNROLL) {
                vec<VEC> x[UNROLL][T];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
#pragma unroll
                    for (int t = 0; t < T; ++t) x[u][t] = i + u < count ? load(from[t] + column[i + u]) : vec<VEC>{};
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const vec<R> w = value[i + u];
#pragma unroll
                    for (int r = 0; r < R; ++r)
#pragma unroll
                        for (int t = 0; t < T; ++t) fma(acc[r][t], w.at[r], x[u][t]);
                }
            }
        }
        if constexpr (IN_ORDER) {
            const Slots to{in_order...};
            const auto offset = [&](int i) { return (unsigned)(i / T) * n + 32 * VEC * (i % T); };
            const auto inside = [&](int i) { return right + 32 * VEC * (i % T) < n; };
            if (it.w >= 0 && !add_in_order<TOGETHER>(reinterpret_cast<vec<VEC>(&)[R * T]>(acc), to.parts + it.w, it.y,
                                                     to.counts + (size_t)panel * to.slots, to.sums + right, (size_t)R * n, offset, inside))
                continue;
        }
        const bool adds = !IN_ORDER && it.w >= 0 && which > 0 && __ldg(&task[which - 1].x) == it.x;
        if (adds) await(handovers + panel * cuts + it.w);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int p = it.x * R + r;
            if (p >= m) break;
#pragma unroll
            for (int t = 0; t < T; ++t) {
                const int here = right + 32 * VEC * t;
                float* to = c + (size_t)row_of(order, p) * n + here;
                if (here >= n) continue;
                if (adds) add(to, acc[r][t]);
                else *reinterpret_cast<vec<VEC>*>(to) = acc[r][t];
            }
        }
        if (!IN_ORDER && it.w >= 0) {
            __syncwarp();
            Handover* const handover = handovers + panel * cuts + it.w;
            if (lane == 0) adds ? take(handover) : leave(handover, __ldg(others + it.w));
        }
    }
}
