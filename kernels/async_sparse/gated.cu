// gated: H = silu(G · X) ∘ (U · X), the first half of a SwiGLU layer, in one launch: neither
// product is ever in memory (sm_90a).
//
//   block row r of both   G's blocks │ U's blocks    one list, first to middle to end: the loader
//                                                    need not know where G's end
//   a warpgroup           wgmma G's blocks ─ silu, rounded, two in a register
//                           ─ wgmma U's blocks ─ multiply ─ store
//
// unit_ring.cu with one change: a tile is multiplied in two runs. Between them the 64 x N
// accumulators become N / 4 registers a thread, rounded to T as the tensor would be that another
// launch writes; the accumulators then begin anew. The other warpgroup multiplies meanwhile, and
// the rings fill. Block rows in which G or U has no block are zeros, and have none in `rows`.
// silu(x) = x / (1 + e^-x), of two values at once with one division: both would be divided by the
// product of the two sums.
//
// Template:  T, N, SHARED, PRIVATE, BUFFERS  as in units.cuh: BF16 or F16. B and C are column-major
#include "units.cuh"

struct Silu {
    static constexpr bool GATED = true;
    struct Slot : ::Slot {
        int middle;  // U's first block
        __device__ __forceinline__ void set(const int4& from, int at)
        {
            ::Slot::set(from, at), middle = from.w;
        }
        __device__ __forceinline__ int split() const { return middle; }
    };
    static __device__ __forceinline__ float2 of(float x, float y)
    {
        // Beyond -40 the product of two sums might overflow; the result is less than 1e-15 there,
        // and x keeps its NaN.
        const float p = 1.f + __expf(-fmaxf(x, -40.f)), q = 1.f + __expf(-fmaxf(y, -40.f));
        const float both = __fdividef(1.f, p * q);
        return make_float2(x * (q * both), y * (p * both));
    }
};

template <Dtype T, int N, int SHARED, int PRIVATE, int BUFFERS>
__global__ void __launch_bounds__(384, 1)
    gated(const __grid_constant__ TensorMap
              a,  // values: 64 rows of b_col for each block; boxes of 64 x K
          const __grid_constant__ TensorMap b,  // X as tokens x k; boxes of N x K
          const __grid_constant__ TensorMap c,  // H as tokens x m; boxes of output.cuh
          const int4* rows, const int* col_idx,
          unsigned* counter,  // block row, first, end, middle; block columns; two zeros
          int high, int panels, int group, int steps)
{
    static_assert(T != TF32, "16-bit types");
    multiply_tiles<Silu, T, K_MAJOR, true, false, N, SHARED, PRIVATE, BUFFERS, 1>(
        a, b, c, rows, col_idx, counter, high, panels, group, steps);
}
