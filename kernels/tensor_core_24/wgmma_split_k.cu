// wgmma_split_k: a cluster of blocks shares the steps of one tile, and adds the sums through each
// other's shared memory.
//
//   cluster of 2   block 0: steps 0 to 7    block 1: steps 8 to 15    for products with fewer tiles
//                       │ sums │                 │ sums │             than SMs
//                  shared memory ◄─ each adds ─► shared memory        squares 0, 2, ... by block 0,
//                                                                     the rest by 1
//
// No workspace in global memory, no atomics, and the order of additions is fixed, so results repeat
// bit by bit.
//
// Template:  SPLITS  blocks of a cluster; the others as in sparse_stages.cuh and store.cuh
#include "sparse_stages.cuh"
#include "split_k.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int SPLITS, int EXTRA,
          Major B = MN_MAJOR, bool COLUMN = false, bool PACKED = false>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_split_k(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64, at least SPLITS; TileOrder
    int kept,            // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch,   // Scale: store.cuh
    int pieces)  // Operands
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    const Operands from{a, e, b, c, pieces};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    multiply_tiles<FromPointers<S>, S>(
        Tiled{from, kept}, Share<SPLITS>({high, wide, band}, steps),
        Exchanged<SPLITS, Store<T, 1, EXTRA, COLUMN>, Scale>{c, scale});
}
