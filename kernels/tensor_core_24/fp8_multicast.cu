// fp8_multicast: two blocks, one below the other, read the same columns of B: each fetches half and
// gives it to both.
//
//   cluster   block 0   tile (i, j)       columns 0 to N/2 - 1 of B ──┬──► both blocks
//             block 1   tile (i + 1, j)   columns N/2 to N - 1 ───────┴──► both blocks
//   half of B's reads of L2
//
// As wgmma_multicast, but the halves are of columns, because B^T lies with k contiguous. A stage is
// filled again only when the warpgroups of both blocks have handed it back.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "roles.cuh"
#include "store_eight.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_multicast(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: fp8_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d, int steps, int high,
    int wide, int band,  // k in steps of 128; TileOrder, of pairs of tiles
    int kept,            // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n,
    const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, d};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    using Out = StoreEight<BUFFERS, OUT, ROWS, COLUMNS, TURNED, EXTRA>;
    multiply_tiles<FromPointers<S>, S, 2, 24, 240, true>(
        Shared<2>{from, kept}, Clusters<2>{{high, wide, band}, steps},
        Squares<Out, Scales>{d, scales});
}
