// union_half: union_rows with B and C in 16 bits. A load of 16 bytes holds 8 columns, so L2 delivers half the bytes for a product.
//
// Products are float32, A's values too; they are rounded once, where a row is stored. Rows of C that several tasks share are added up
// in float32, `sums`: the first part stores there, the others add when it has, and who adds last rounds (handover.cuh); or, given
// Slots, in one order, as in union_rows.
//
// Template:  T       BF16 or F16
//            R       rows of a group: 1, 2, 4 or 8
//            WORDS   32-bit words of a load, two columns each: 4 or 2
//            WARPS   of a block; BLOCKS of them share an SM
//            UNROLL  rows of B that are asked for together
//            InOrder none, or the types of what Slots has
#include "cut_windows.cuh"
#include "handover.cuh"
#include "in_order.cuh"
#include "vec.cuh"

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
    for (int w = 0; w < WORDS; ++w) y.at[w] = __uint_as_float(pack<T>(x.at[2 * w], x.at[2 * w + 1]));
    return y;
}

template <Dtype T, int R, int WORDS, int WARPS, int BLOCKS, int UNROLL, class... InOrder>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
union_half(const int4* __restrict__ task, int tasks, int per_block,          // cut_windows.cuh, of groups
           const int* __restrict__ col_idx, const vec<R>* __restrict__ val,  // columns of the unions, R values each
           const int* __restrict__ order, const int* __restrict__ others,    // row_of; parts of a cut group but the first
           Handover* __restrict__ handovers, int cuts,                       // for each panel one of each cut group
           float* sums,                                                      // R rows of `width` for each cut group
           const unsigned* __restrict__ b, unsigned* __restrict__ c, int m, int width,  // bits of T; rows of `width` columns, 8 a unit
           InOrder... in_order)  // as in union_rows
{
    constexpr bool IN_ORDER = sizeof...(InOrder) > 0;
    constexpr int COLUMNS = 2 * WORDS;  // of a lane
    constexpr int TOGETHER = 2 * R < UNROLL ? UNROLL / 2 / R : 1;
    __shared__ unsigned columns[WARPS][32];  // where rows of B begin, in loads
    __shared__ vec<R> values[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned* const column = columns[warp];
    vec<R>* const value = values[warp];
    const int blocks = (tasks + per_block - 1) / per_block, first = blockIdx.x % blocks * per_block;
    const int last = min(tasks, first + per_block);
    const unsigned panel = blockIdx.x / blocks;
    const int right = (panel * 32 + lane) * COLUMNS;
    const bool inside = right < width;  // beyond the row: anything is loaded, nothing stored
    const vec<WORDS>* const from = reinterpret_cast<const vec<WORDS>*>(b) + (inside ? right / COLUMNS : 0);
    const unsigned pitch = width / COLUMNS;

    for (int which = first + warp; which < last; which += WARPS) {
        const int4 it = __ldg(task + which);
        vec<COLUMNS> acc[R] = {};
        for (int at = it.y; at < it.z; at += 32) {
            const int count = min(32, it.z - at);
            __syncwarp();  // all have read what is overwritten
            column[lane] = lane < count ? __ldg(col_idx + at + lane) * pitch : 0;
#pragma unroll
            for (int r = 0; r < R; ++r) value[lane].at[r] = 0.f;
            if (lane < count) value[lane] = val[at + lane];
            __syncwarp();
            for (int i = 0; i < count; i += UNROLL) {
                vec<WORDS> x[UNROLL];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) x[u] = i + u < count ? load(from + column[i + u]) : vec<WORDS>{};
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const vec<R> w = value[i + u];
#pragma unroll
                    for (int r = 0; r < R; ++r) fma<T, WORDS>(acc[r], w.at[r], x[u]);
                }
            }
        }
        if constexpr (IN_ORDER) {
            const Slots to{in_order...};
            constexpr int EACH = COLUMNS / 4;  // loads of a row
            const auto offset = [&](int i) { return (unsigned)(i / EACH) * width + i % EACH * 4; };
            if (it.w >= 0 && !add_in_order<TOGETHER>(reinterpret_cast<vec<4>(&)[R * EACH]>(acc), to.parts + it.w, it.y,
                                                     to.counts + (size_t)panel * to.slots, to.sums + right, (size_t)R * width, offset,
                                                     [&](int) { return inside; }))
                continue;
        }
        const bool cut = !IN_ORDER && it.w >= 0, adds = cut && which > 0 && __ldg(&task[which - 1].x) == it.x;
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
                        const float4 x = {acc[r].at[j], acc[r].at[j + 1], acc[r].at[j + 2], acc[r].at[j + 3]};
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
                        const float4 x = __ldcg(reinterpret_cast<const float4*>(mine + (size_t)r * width + j));
                        acc[r].at[j] = x.x, acc[r].at[j + 1] = x.y, acc[r].at[j + 2] = x.z, acc[r].at[j + 3] = x.w;
                    }
            }
        }
        if (!rounds || !inside) continue;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int p = it.x * R + r;
            if (p >= m) break;
            reinterpret_cast<vec<WORDS>*>(c)[((size_t)row_of(order, p) * width + right) / COLUMNS] = rounded<T, WORDS>(acc[r]);
        }
    }
}
