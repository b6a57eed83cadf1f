// fp8_few: wgmma_few on e4m3, few tokens, where all that counts is how fast A comes from DRAM.
//
//   wgmma_few    a piece of 64 rows brings 4096 bytes, and its metadata comes from another place
//   here         5120 bytes with the metadata, twice the columns
//
// Registers stay where they are and are few: 80, or 128 for 64 columns, let the next block of the SM in.
//
// Template:  SPLITS  blocks of a cluster, which share the steps of a tile; the others as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "split_k.cuh"
#include "store_eight.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int SPLITS, Out OUT, bool ROWS, bool COLUMNS, bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 65536 / (N < 64 ? 80 : 128) / ((GROUPS + 1) * 128)) fp8_few(
    const unsigned char* __restrict__ packed,  // as in fp8_packed
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,  // fp8_stages.cuh
    int steps, int high, int wide, int band,  // k in steps of 128, at least SPLITS; TileOrder
    int kept,  // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n, const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const Operands from{b, b, b, d};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    multiply_tiles<FromPointers<S>, S, 1, 0, 0, true>(
        Packed<true>{from, packed, steps, kept}, Share<SPLITS>({high, wide, band}, steps),
        Exchanged<SPLITS, StoreEight<1, OUT, ROWS, COLUMNS, TURNED, EXTRA>, Scales>{d, scales});
}
