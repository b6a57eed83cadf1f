// In order: sums of several tasks of a launch are added up in one order, whichever of the tasks is
// done first (sm_70).
//
// Each task leaves its sums, a part, in a slot of its own. Of every FAN neighbours who is done last
// adds up all, from the first slot to the last, and leaves that in the slot of the first; of what
// is left likewise, until the last of all has the whole:
//
//   parts        0  1  2 ... 15 │ 16 ... 31 │ 32  33
//   level 0            0        │    16     │    32    the order of additions is this tree's, for
//   level 1                     0                      any order of tasks
//
// Nobody waits for anybody. A count wraps to 0 with the last who counts, so that the next launch,
// or replay of a graph, begins with zeros. Launches that overlap need slots and counts of their
// own.
#pragma once

#include "vec.cuh"

constexpr int FAN = 16;  // 8 at least

// Of a group of tasks that share sums, which are cut alike. Tasks say which group they are of.
struct alignas(16) Parts {
    int slot, count;     // of the first part; parts, 2 at least
    int first, columns;  // where the first part begins; columns of each but the last
};

// What a kernel is given for it.
struct Slots {
    const Parts* parts;
    // One for each slot, and that for each who adds columns of his own: zeros before the first
    // launch.
    unsigned* counts;
    int slots;
    float* sums;
};

// Past L1, of what another SM may have written during the kernel.
__device__ __forceinline__ vec<1> load_cg(const vec<1>* p)
{
    return {{__ldcg(reinterpret_cast<const float*>(p))}};
}
__device__ __forceinline__ vec<2> load_cg(const vec<2>* p)
{
    const float2 v = __ldcg(reinterpret_cast<const float2*>(p));
    return {{v.x, v.y}};
}
__device__ __forceinline__ vec<4> load_cg(const vec<4>* p)
{
    const float4 v = __ldcg(reinterpret_cast<const float4*>(p));
    return {{v.x, v.y, v.z, v.w}};
}

// Says that this warp has left its sums; true for the last of `all` warps, who then sees what the
// others left.
__device__ __forceinline__ bool is_last(unsigned* count, unsigned all)
{
    unsigned before = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("atom.release.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(__cvta_generic_to_global(count)), "r"(all - 1)
                     : "memory");
    const bool last = __shfl_sync(~0u, before, 0) == all - 1;
    if (last) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __syncwarp();
    return last;
}

// Adds up the parts of a group, of which this warp has one; true for the warp whose acc holds the
// whole afterwards, and for no other.
//
// acc: what this lane has, COUNT loads of W columns. group, column: of which group the part is, and
// where it begins. counts: of all slots, for this warp's columns. sums: of all slots, `pitch`
// floats each, where load i is offset(i) behind the first if inside(i). TOGETHER: parts that are
// asked for together.
template <int TOGETHER, int W, int COUNT, class Offset, class Inside>
__device__ __forceinline__ bool
add_in_order(vec<W> (&acc)[COUNT], const Parts* group, int column, unsigned* counts, float* sums,
             size_t pitch, Offset offset, Inside inside)
{
    const auto at = [&](float* slot, int i) { return reinterpret_cast<vec<W>*>(slot + offset(i)); };
    const int4 it = __ldg(reinterpret_cast<const int4*>(group));
    const Parts of{it.x, it.y, it.z, it.w};
    int mine = (column - of.first) / of.columns, left = of.count;
    // A node of level l counts l behind its first slot: that is its own, of several parts of level
    // l, and no other's, since first slots are multiples of FAN and levels fewer than FAN: 8, of
    // 2^31 parts.
#pragma unroll 1
    for (int stride = 1, level = 0; left > 1; stride *= FAN, ++level) {
        const int from = mine / FAN * FAN, many = min(FAN, left - from);
        if (many > 1) {
            float* const to = sums + (of.slot + mine * stride) * pitch;
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (inside(i)) *at(to, i) = acc[i];
            int slot = of.slot + from * stride;
            if (!is_last(counts + slot + level, many)) return false;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) acc[i] = {};
#pragma unroll 1
            for (const int past = slot + many * stride; slot < past; slot += TOGETHER * stride) {
                vec<W> x[TOGETHER][COUNT];
#pragma unroll
                for (int u = 0; u < TOGETHER; ++u) {
                    float* const from = sums + (slot + u * stride) * pitch;
#pragma unroll
                    for (int i = 0; i < COUNT; ++i)
                        x[u][i] =
                            slot + u * stride < past && inside(i) ? load_cg(at(from, i)) : vec<W>{};
                }
#pragma unroll
                for (int u = 0; u < TOGETHER; ++u)
#pragma unroll
                    for (int i = 0; i < COUNT; ++i) fma(acc[i], 1.f, x[u][i]);
            }
        }
        mine /= FAN, left = (left + FAN - 1) / FAN;
    }
    return true;
}
