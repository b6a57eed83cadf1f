// union_rows: groups of rows over the union of their columns (union.cuh). CUDA cores, float32 as it
// is.
//
// The first part of a group that is cut stores its rows of C, and the others add to them.
//
// Template:  R, WARPS, UNROLL, InOrder  as in union.cuh; BLOCKS share an SM
//            VEC     float32 values of one load of B: 1, 2 or 4; must divide n
//            T       such loads for a row of B
#include "union.cuh"

template <int R, int VEC, int T, int WARPS, int BLOCKS, int UNROLL, class... InOrder>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    union_rows(const int4* __restrict__ task, int tasks, int per_block,
               const int* __restrict__ col_idx, const vec<R>* __restrict__ val,
               const int* __restrict__ order, const int* __restrict__ others,
               Handover* __restrict__ handovers, int cuts, const float* __restrict__ b,
               float* __restrict__ c, int m, int n, InOrder... in_order)
{
    multiply_groups<FLOAT32, R, VEC, T, WARPS, UNROLL>(
        task, tasks, per_block, col_idx, val, order, others, handovers, cuts, nullptr, b, c, m, n,
        in_order...);
}
