// subwarp: rows of C by a few lanes each, for a B of few columns. CUDA cores, float32 sums.
//
// A warp that has one row of A wants 128 columns of B to be busy. With fewer, LANES of its lanes
// hold the columns, and the warp multiplies several entries at once: SLOTS of a row, and the rows
// of 32 / (LANES * SLOTS) teams:
//
//   n = 8, LANES 2, slots 4      lane   0 1   2 3   4 5   6 7  │  8 9   …          │ …
//                                row    r                      │  r + 1            │
//                                entry  0     1     2     3    │  0     1   …      │
//                                       then  4, 5, 6, 7 …     │                   │
//
// At the end slots are added up by shuffles, always in the same order.
//
// With QUADS a slot has four entries side by side, which one load brings; else the slots of a team
// have entries in turn, which spreads short rows more evenly.
//
// A is read as it is, CSR, or groups of R rows over the union of their columns (union.cuh). Rows of
// more than `most` entries would keep a warp's other teams waiting: blocks of their own take them,
// all slots on one row, the longest of them in parts that are added up in one order (in_order.cuh).
// These begin first.
//
// What is cold in L2 is fetched by all threads at once when the kernel begins, before the first of
// them knows which column it wants: a launch on few non-zeros takes as long as its chain of trips
// to memory, row_ptr → col_idx → B.
//
// Where any row of a group names an infinite or NaN row of B, all rows of the group become NaN.
//
// Template:  T       FLOAT32, BF16 or F16: of B and C
//            R       rows of a group: 1, 2 or 4
//            V       columns of a load: 1, 2 or 4, of 16-bit types also 8; must divide n
//            LOADS   of a lane for a row of B
//            LANES   that hold a row's columns, or a panel's: a power of 2
//            BLOCKS  share an SM
#include "in_order.cuh"
#include "packed.cuh"
#include "teams.cuh"

constexpr int UNROLL = 4;  // entries that a slot asks for together

template <Dtype T, int R, int V, int LOADS, int LANES, bool QUADS, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) subwarp(
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
    const vec<R>* __restrict__ val, int entries,
    const int4* __restrict__ lengthy,       // { group, first entry, past the last, -1 or which of
    int blocks,                             //   the cut ones } for so many blocks
    int groups, int teams_slots, int most,  // rows; slots of a team; entries that it takes
    const int4* __restrict__ sorted,        // none, or all groups likewise, the longest first,
    int skipped, int end0, int end1, int end2, int end3, int end4,  // see teams.cuh
    int ahead,  // threads that fetch what is cold; 0: none
    const Parts* __restrict__ parts, unsigned* __restrict__ counts, int places,
    float* __restrict__ sums, const void* __restrict__ b, long long b_bytes, void* __restrict__ c,
    int m, int width)
{
    constexpr int SIZE = T == FLOAT32 ? 4 : 2, PACE = LANES * V;  // from a lane's load to its next
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    fetch_ahead(ahead, col_idx, entries * 4ll, val, entries * 4ll * R, b, b_bytes);
    const Team of = team_of<LANES>(row_ptr, groups, teams_slots, most, lengthy, blocks, sorted,
                                   skipped, end0, end1, end2, end3, end4);
    const int group = of.group, begin = of.begin, end = of.end, cut = of.cut;
    int slot = of.slot, slots = of.slots;
    const int right = blockIdx.y * (PACE * LOADS) + lane % LANES * V;
    const char* from[LOADS];  // beyond the row: anything, not stored
#pragma unroll
    for (int t = 0; t < LOADS; ++t)
        from[t] = static_cast<const char*>(b) + min(right + PACE * t, width - V) * SIZE;
    const size_t pitch = (size_t)width * SIZE;

    vec<V> acc[R * LOADS] = {};
    int column[UNROLL];  // -1: none
    vec<R> value[UNROLL];
    const auto ask = [&](int at) {
        if constexpr (QUADS) {
            if (at < end && at + UNROLL <= entries) {
                const int4 four = __ldg(reinterpret_cast<const int4*>(col_idx + at));
                column[0] = four.x, column[1] = four.y, column[2] = four.z, column[3] = four.w;
                vec<4>* const to = reinterpret_cast<vec<4>*>(value);
#pragma unroll
                for (int r = 0; r < R; ++r)
                    to[r] = load(reinterpret_cast<const vec<4>*>(val + at) + r);
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    if (at + u < begin || at + u >= end) column[u] = -1, value[u] = {};
            } else {  // past the end, or where A ends
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const bool there = at + u >= begin && at + u < end;
                    column[u] = there ? __ldg(col_idx + at + u) : -1;
                    value[u] = there ? load(val + at + u) : vec<R>{};
                }
            }
        } else {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const bool there = at + u * slots < end;
                column[u] = there ? __ldg(col_idx + at + u * slots) : -1;
                value[u] = there ? load(val + at + u * slots) : vec<R>{};
            }
        }
    };
    int at = QUADS ? begin / UNROLL * UNROLL + slot * UNROLL : begin + slot;
    ask(at);
    while (at < end) {
        Packed<T, V> x[UNROLL][LOADS];
        vec<R> w[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            w[u] = value[u];
#pragma unroll
            for (int t = 0; t < LOADS; ++t)
                x[u][t] = column[u] >= 0 ? Packed<T, V>::load(from[t] + column[u] * pitch)
                                         : Packed<T, V>{};
        }
        at += slots * UNROLL;
        ask(at);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int r = 0; r < R; ++r)
#pragma unroll
                for (int t = 0; t < LOADS; ++t) x[u][t].multiply(acc[r * LOADS + t], w[u].at[r]);
    }
    __syncwarp();
    for (int away = LANES * min(slots, 32 / LANES) / 2; away >= LANES; away /= 2)
#pragma unroll
        for (int i = 0; i < R * LOADS; ++i)
#pragma unroll
            for (int v = 0; v < V; ++v) acc[i].at[v] += __shfl_xor_sync(~0u, acc[i].at[v], away);
    if (of.block) {
        __shared__ vec<V> of_warps[WARPS][R * LOADS][LANES];
        if (lane < LANES)
#pragma unroll
            for (int i = 0; i < R * LOADS; ++i) of_warps[warp][i][lane] = acc[i];
        __syncthreads();
        if (warp) return;
#pragma unroll
        for (int i = 0; i < R * LOADS; ++i)
            for (int w = 1; w < WARPS; ++w) fma(acc[i], 1.f, of_warps[w][i][lane % LANES]);
        slot = lane / LANES, slots = 1;
    }
    if (cut >= 0) {
        constexpr int WIDE = V < 4 ? V : 4, EACH = V / WIDE;
        const auto offset = [&](int i) {
            return (unsigned)(i / (LOADS * EACH)) * width + i / EACH % LOADS * PACE +
                   i % EACH * WIDE;
        };
        const auto stored = [&](int i) {
            return slot == 0 && right + i / EACH % LOADS * PACE < width;
        };
        if (!add_in_order<2>(reinterpret_cast<vec<WIDE>(&)[R * LOADS * EACH]>(acc), parts + cut,
                             begin, counts + (size_t)blockIdx.y * places, sums + right,
                             (size_t)R * width, offset, stored))
            return;
    }
    if (group < 0) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int p = group * R + r;
        if (p >= m || slot != r % slots) continue;
#pragma unroll
        for (int t = 0; t < LOADS; ++t)
            if (right + PACE * t < width)
                Packed<T, V>::store(
                    static_cast<char*>(c) + (p * (size_t)width + right + PACE * t) * SIZE,
                    acc[r * LOADS + t]);
    }
}
