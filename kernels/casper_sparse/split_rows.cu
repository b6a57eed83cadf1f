// split_rows: long rows are cut, so that no group of lanes works much longer than its neighbours.
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major.
//
// A graph's hub can have a thousand times the non-zeros of an ordinary row: one warp then works
// while the GPU waits. The host cuts the rows into work items once, at most `chunk` non-zeros each:
//
//      items:  { row, first non-zero, number of non-zeros, shared }     one int4 each, in row order
//
// A row of one item is stored; the items of a cut row (`shared`) add to it with atomics, after
// zero_rows has cleared those rows: in the order in which they are done, so that last bits of rows
// of three items or more change from launch to launch. Items otherwise take the place that rows
// have in rows_per_warp.
//
// Template: as in rows_per_warp.
#include "vec.cuh"

template <int THREADS, int LANES, int VEC, int UNROLL>
__global__ void __launch_bounds__(THREADS, 1536 / THREADS)
    split_rows(int items, int n, int items_per_block, const int4* __restrict__ item,
               const int* __restrict__ col_idx, const float* __restrict__ val,
               const float* __restrict__ B, float* __restrict__ C)
{
    static_assert(
        LANES % UNROLL == 0, "a chunk of LANES non-zeros is cut into whole groups of UNROLL");
    const int blocks = (items + items_per_block - 1) / items_per_block;
    const int first = blockIdx.x % blocks * items_per_block;
    const int last = min(items, first + items_per_block);
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int col = blockIdx.x / blocks * (LANES * VEC) + lane * VEC;

    for (int base = first; base < last; base += THREADS / LANES) {
        const bool mine = base + group < last;
        const int4 it = mine ? item[base + group] : make_int4(0, 0, 0, 0);
        const int start = it.y, length = it.z;
        const int longest = __reduce_max_sync(~0u, length);
        vec<VEC> acc = {};
        for (int i = 0; i < longest; i += LANES) {
            const int my_col = i + lane < length ? col_idx[start + i + lane] : 0;
            const float my_val = i + lane < length ? val[start + i + lane] : 0.f;
            const int t = min(LANES, longest - i);
            for (int j = 0; j < t; j += UNROLL) {
                vec<VEC> b[UNROLL];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const size_t k = __shfl_sync(~0u, my_col, j + u, LANES);
                    const bool inside = i + j + u < length && col < n;
                    b[u] = inside ? load(reinterpret_cast<const vec<VEC>*>(B + k * n + col))
                                  : vec<VEC>{};
                }
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    fma(acc, __shfl_sync(~0u, my_val, j + u, LANES), b[u]);
            }
        }
        float* c = C + (size_t)it.x * n + col;
        if (!mine || col >= n) continue;
        if (it.w) {
#pragma unroll
            for (int v = 0; v < VEC; ++v) atomicAdd(c + v, acc.at[v]);
        } else {
            *reinterpret_cast<vec<VEC>*>(c) = acc;
        }
    }
}

// Clears the cut rows before split_rows adds to them; one block a row.
__global__ void zero_rows(int n, const int* __restrict__ rows, float* __restrict__ C)
{
    for (int col = threadIdx.x; col < n; col += blockDim.x)
        C[(size_t)rows[blockIdx.x] * n + col] = 0.f;
}
