// wgmma_multicast: two blocks, one below the other, read the same columns of B: each fetches half
// and gives it to both.
//
//   cluster   block 0   tile (i, j)       B rows 0-31 of every stage ──┬──► both blocks
//             block 1   tile (i + 1, j)   B rows 32-63 ────────────────┴──► both blocks
//   half of B's reads of L2
//
// The price: a stage is filled again only when the warpgroups of both blocks have handed it back,
// so neither runs ahead.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sparse_stages.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_multicast(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64; TileOrder, of pairs of tiles
    int kept,            // 1: L2 is asked to keep A, 2: B
    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const Scale scale{alpha};
    using Out = Store<T, BUFFERS, false>;
    multiply_tiles<FromPointers<S>, S, 2>(
        Shared<2>{from, kept}, Clusters<2>{{high, wide, band}, steps},
        Squares<Out, Scale>{c, scale});
}
