// union_half: union_rows with B and C in 16 bits. A load of 16 bytes holds 8 columns, so L2
// delivers half the bytes for a product.
//
// Products are float32, A's values too; they are rounded once, where a row is stored. Rows of C
// that several tasks share are added up in float32, `sums`: the first part stores there, the others
// add when it has, and who adds last rounds.
//
// Template:  R, WARPS, UNROLL, InOrder  as in union.cuh; BLOCKS share an SM
//            T       BF16 or F16
//            WORDS   32-bit words of a load, two columns each: 4 or 2
#include "union.cuh"

template <Dtype T, int R, int WORDS, int WARPS, int BLOCKS, int UNROLL, class... InOrder>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) union_half(
    const int4* __restrict__ task, int tasks, int per_block, const int* __restrict__ col_idx,
    const vec<R>* __restrict__ val, const int* __restrict__ order, const int* __restrict__ others,
    Handover* __restrict__ handovers, int cuts, float* sums, const unsigned* __restrict__ b,
    unsigned* __restrict__ c, int m, int width, InOrder... in_order)
{
    multiply_groups<T, R, WORDS, 1, WARPS, UNROLL>(
        task, tasks, per_block, col_idx, val, order, others, handovers, cuts, sums, b, c, m, width,
        in_order...);
}
