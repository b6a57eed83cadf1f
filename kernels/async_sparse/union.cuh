// Rows in groups of R, each group times the rows of B that any of its rows names, on CUDA cores
// (union_rows.cu, union_half.cu).
//
//   group of R = 4 rows       columns of the union  0   2   7   9
//      row 4g      a . b . .  values, R of each     a   b   .   .   one load of B feeds R rows:
//      row 4g + 1  . . c . d                        .   c   .   d    acc[r] += value[r] * B[column]
//      row 4g + 2  . . . e .                        .   .   e   .
//      row 4g + 3  f . . . .                        f   .   .   .
//
// A row-by-row kernel is bound by what L2 and L1 deliver of B: 4 bytes for 2 operations. Here a row
// of B is fetched once for R rows, at the price of multiplying zeros, which is free up to R = 8: 8
// cycles of multiply-adds for what L2 delivers in 12.
//
// A task is a group or a part of a long one (cut_windows.cuh). A warp has every WARPS-th of
// `per_block` tasks, for the columns of C that 32 * LOADS loads hold: neighbours in a block share
// rows of B through L1, blocks that run side by side through L2, the closer the shorter they are,
// and all tasks of a panel of columns come before the next panel's, whose B may stay in L2. Columns
// and values are loaded 32 at a time, a lane each, and handed round through shared memory.
//
// Of a group that is cut the first part stores its sums and the others, later tasks, add to them
// when it has (handover.cuh): a launch that clears them beforehand would cost 2 to 3 us. A warp
// waits for earlier tasks only, and blocks begin in their order. Of three parts the second and the
// third add as they come, so last bits of C change from launch to launch. Given Slots, parts are
// added up in one order instead, and nobody waits (in_order.cuh).
//
// Where any row of a group names an infinite or NaN row of B, all rows of the group become NaN.
//
// Template:  T       FLOAT32, BF16 or F16: of B and C
//            R       rows of a group: 1, 2, 4 or 8
//            W       32-bit words of a load of B: 1, 2 or 4; of 16-bit types 2 or 4
//            LOADS   of a row of B; 1 of 16-bit types
//            WARPS   of a block
//            UNROLL  rows of B that are asked for together
//            InOrder none, or the types of what Slots has
#pragma once

#include "cut_windows.cuh"
#include "handover.cuh"
#include "in_order.cuh"
#include "vec.cuh"

constexpr Dtype FLOAT32 = TF32;  // exact here

__device__ __forceinline__ void add(float* to, const vec<4>& x)
{
    add4(to, {x.at[0], x.at[1], x.at[2], x.at[3]});
}
__device__ __forceinline__ void add(float* to, const vec<2>& x)
{
    atomicAdd(to, x.at[0]), atomicAdd(to + 1, x.at[1]);
}
__device__ __forceinline__ void add(float* to, const vec<1>& x) { atomicAdd(to, x.at[0]); }

// acc += a * the columns of a load.
template <Dtype T, int WORDS>
__device__ __forceinline__ void fma(vec<2 * WORDS>& acc, float a, const vec<WORDS>& x)
{
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        const float2 two = unpack<T>(__float_as_uint(x.at[w]));
        acc.at[2 * w] = fmaf(a, two.x, acc.at[2 * w]);
        acc.at[2 * w + 1] = fmaf(a, two.y, acc.at[2 * w + 1]);
    }
}

template <Dtype T, int WORDS>
__device__ __forceinline__ vec<WORDS> rounded(const vec<2 * WORDS>& x)
{
    vec<WORDS> y;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        y.at[w] = __uint_as_float(pack<T>(x.at[2 * w], x.at[2 * w + 1]));
    return y;
}

// What is HALF's alone and float32's stands in branches, not in functions: as these it would be
// other machine code.
template <Dtype T, int R, int W, int LOADS, int WARPS, int UNROLL, class Word, class... InOrder>
__device__ __forceinline__ void multiply_groups(
    const int4* __restrict__ task, int tasks, int per_block,  // cut_windows.cuh, of groups
    const int* __restrict__ col_idx,
    const vec<R>* __restrict__ val,  // columns of the unions, R values each
    const int* __restrict__ order,
    const int* __restrict__ others,              // row_of; parts of a cut group but the first
    Handover* __restrict__ handovers, int cuts,  // for each panel one of each cut group
    float* sums,  // R rows of `width` for each cut group, of 16-bit types
    const Word* __restrict__ b, Word* __restrict__ c, int m,
    int width,            // row-major, rows of `width` columns, whole loads
    InOrder... in_order)  // nothing, or what Slots has
{
    constexpr bool IN_ORDER = sizeof...(InOrder) > 0, HALF = T != FLOAT32;
    constexpr int COLUMNS = HALF ? 2 * W : W,
                  STRIDE = 32 * COLUMNS;  // of a load; from a lane's load to its next
    constexpr int EACH = HALF ? 2 * R : R,
                  TOGETHER =
                      EACH < UNROLL ? UNROLL / EACH : 1;  // parts that are asked for together
    static_assert(
        R == 1 || R == 2 || R == 4 || R == 8, "values of a column are loaded by whole units");
    static_assert(32 % UNROLL == 0, "a chunk of 32 columns is cut into whole groups of UNROLL");
    __shared__ unsigned columns[WARPS][32];  // where rows of B begin, in loads
    __shared__ vec<R> values[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned* const column = columns[warp];
    vec<R>* const value = values[warp];
    const int blocks = (tasks + per_block - 1) / per_block, first = blockIdx.x % blocks * per_block;
    const int last = min(tasks, first + per_block);
    const unsigned panel = blockIdx.x / blocks;
    const int right =
        HALF ? (panel * 32 + lane) * COLUMNS : panel * (STRIDE * LOADS) + lane * COLUMNS;
    const bool inside = right < width;
    const vec<W>* from[LOADS];  // beyond the row: anything, not stored
#pragma unroll
    for (int t = 0; t < LOADS; ++t)
        from[t] =
            HALF ? reinterpret_cast<const vec<W>*>(b) + (inside ? right / COLUMNS : 0)
                 : reinterpret_cast<const vec<W>*>(b + min(right + STRIDE * t, width - COLUMNS));
    const unsigned pitch = width / COLUMNS;

    for (int which = first + warp; which < last; which += WARPS) {
        const int4 it = __ldg(task + which);
        vec<COLUMNS> acc[R][LOADS] = {};
        for (int at = it.y; at < it.z; at += 32) {
            const int count = min(32, it.z - at);
            __syncwarp();  // all have read what is overwritten
            column[lane] = lane < count ? __ldg(col_idx + at + lane) * pitch : 0;
#pragma unroll
            for (int r = 0; r < R; ++r) value[lane].at[r] = 0.f;
            if (lane < count) value[lane] = val[at + lane];
            __syncwarp();
            for (int i = 0; i < count; i += UNROLL) {
                vec<W> x[UNROLL][LOADS];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
#pragma unroll
                    for (int t = 0; t < LOADS; ++t)
                        x[u][t] = i + u < count ? load(from[t] + column[i + u]) : vec<W>{};
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const vec<R> w = value[i + u];
#pragma unroll
                    for (int r = 0; r < R; ++r)
#pragma unroll
                        for (int t = 0; t < LOADS; ++t)
                            if constexpr (HALF) fma<T, W>(acc[r][t], w.at[r], x[u][t]);
                            else fma(acc[r][t], w.at[r], x[u][t]);
                }
            }
        }
        if constexpr (IN_ORDER) {
            const Slots to{in_order...};
            constexpr int V = HALF ? 4 : W,
                          LONG = HALF ? COLUMNS / 4
                                      : LOADS;  // floats that are stored together; stores of a row
            constexpr int NEXT = HALF ? 4 : STRIDE;  // from a store to the next
            const auto offset = [&](int i) {
                return (unsigned)(i / LONG) * width + i % LONG * NEXT;
            };
            const auto stored = [&](int i) {
                if constexpr (HALF) return inside;
                else return right + STRIDE * (i % LOADS) < width;
            };
            if (it.w >= 0 &&
                !add_in_order<TOGETHER>(reinterpret_cast<vec<V>(&)[R * LONG]>(acc), to.parts + it.w,
                                        it.y, to.counts + (size_t)panel * to.slots, to.sums + right,
                                        (size_t)R * width, offset, stored))
                continue;
        }
        if constexpr (HALF) {  // parts add to `sums`, and the last of them rounds
            const bool cut = !IN_ORDER && it.w >= 0,
                       adds = cut && which > 0 && __ldg(&task[which - 1].x) == it.x;
            bool rounds = !cut;  // and stores C
            if (cut) {
                Handover* const handover = handovers + panel * cuts + it.w;
                float* const mine = sums + (size_t)it.w * R * width + right;
                if (adds) await(handover);
                if (inside)
#pragma unroll
                    for (int r = 0; r < R; ++r)
#pragma unroll
                        for (int j = 0; j < COLUMNS; j += 4) {
                            const float4 x = {acc[r][0].at[j], acc[r][0].at[j + 1],
                                              acc[r][0].at[j + 2], acc[r][0].at[j + 3]};
                            float* const to = mine + (size_t)r * width + j;
                            if (adds) add4(to, x);
                            else __stcg(reinterpret_cast<float4*>(to), x);
                        }
                __threadfence();
                __syncwarp();
                if (lane == 0) {
                    if (adds) rounds = take_last(handover);
                    else leave(handover, __ldg(others + it.w));
                }
                rounds = __shfl_sync(~0u, rounds, 0);
                if (rounds && inside) {
                    __threadfence();
#pragma unroll
                    for (int r = 0; r < R; ++r)
#pragma unroll
                        for (int j = 0; j < COLUMNS; j += 4) {
                            const float4 x = __ldcg(
                                reinterpret_cast<const float4*>(mine + (size_t)r * width + j));
                            acc[r][0].at[j] = x.x, acc[r][0].at[j + 1] = x.y,
                            acc[r][0].at[j + 2] = x.z, acc[r][0].at[j + 3] = x.w;
                        }
                }
            }
            if (!rounds || !inside) continue;
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int p = it.x * R + r;
                if (p >= m) break;
                reinterpret_cast<vec<W>*>(c)[((size_t)row_of(order, p) * width + right) / COLUMNS] =
                    rounded<T, W>(acc[r][0]);
            }
        } else {  // parts add to C itself
            const bool adds =
                !IN_ORDER && it.w >= 0 && which > 0 && __ldg(&task[which - 1].x) == it.x;
            if (adds) await(handovers + panel * cuts + it.w);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int p = it.x * R + r;
                if (p >= m) break;
#pragma unroll
                for (int t = 0; t < LOADS; ++t) {
                    const int here = right + STRIDE * t;
                    float* to = c + (size_t)row_of(order, p) * width + here;
                    if (here >= width) continue;
                    if (adds) add(to, acc[r][t]);
                    else *reinterpret_cast<vec<W>*>(to) = acc[r][t];
                }
            }
            if (!IN_ORDER && it.w >= 0) {
                __syncwarp();
                Handover* const handover = handovers + panel * cuts + it.w;
                if (lane == 0) adds ? take(handover) : leave(handover, __ldg(others + it.w));
            }
        }
    }
}
