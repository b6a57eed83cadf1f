// fp8_split_k: a cluster of blocks shares the steps of one tile, and adds the sums through each
// other's shared memory.
//
//   cluster of 2   block 0: steps 0 to 7    block 1: steps 8 to 15    for products with fewer tiles
//                       │ sums │                 │ sums │             than SMs
//                  shared memory ◄─ each adds ─► shared memory        squares 0, 2, ... by block 0,
//                                                                     the rest by 1
//
// As wgmma_split_k, with A packed as in fp8_packed. What the blocks add is float32 with all its
// bits, so that a sum cut in two is more accurate, too.
//
// Template:  SPLITS  blocks of a cluster; the others as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "split_k.cuh"
#include "store_eight.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int SPLITS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_split_k(
    const unsigned char* __restrict__ packed,                                  // as in fp8_packed
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,  // fp8_stages.cuh
    int steps, int high, int wide, int band,  // k in steps of 128, at least SPLITS; TileOrder
    int kept,                                 // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n,
    const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const Operands from{b, b, b, d};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    multiply_tiles<FromPointers<S>, S, 1, 24, 240, true>(
        Packed<true>{from, packed, steps, kept}, Share<SPLITS>({high, wide, band}, steps),
        Exchanged<SPLITS, StoreEight<1, OUT, ROWS, COLUMNS, TURNED, EXTRA>, Scales>{d, scales});
}
