// wgmma_clusters: wgmma_lean by clusters of blocks, one below the other, each of which fetches its
// share of B for all.
//
//   cluster of 4   block r   tile (4 i + r, j)   B rows 16 r to 16 r + 15 of every stage ──► all
//
// What a small product waits for is the way into its SMs, and for B's rows the copy engine's
// requests: where rows begin at odd multiples of 16 bytes, L2 counts about three times as many. In
// a cluster each SM asks for a half or a quarter of the rows. Large products lose by it: blocks
// that wait for each other no longer read what other SMs read at that moment.
//
// Template:  as in sparse_stages.cuh and store.cuh; SHARE: blocks of a cluster, 2 or 4
#include "roles.cuh"
#include "sparse_reader.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA, int SHARE,
          Major B = MN_MAJOR, bool COLUMN = false, bool PACKED = false>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_clusters(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64; TileOrder, of tiles that are SHARE times as high
    int kept,            // 1: L2 is asked to keep A, 2: B
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch,   // Scale: store.cuh
    int pieces)  // Operands
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    const Operands from{a, e, b, c, pieces};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA, COLUMN>;
    multiply_tiles<Counted<S>, S, SHARE>(
        Shared<SHARE>{from, kept}, Clusters<SHARE>{{high, wide, band}, steps},
        Squares<Out, Scale>{c, scale});
}
