// fp8_pairs: fp8_direct in clusters of two blocks, one below the other, that fetch B for each
// other.
//
//                                                                    a step of 128 x 256 from L2
//   fp8_direct      80 bytes of A for each row, 128 of B for each column                    42 KiB
//   fp8_multicast   half of B; A in halves of lines; four stages, so that a block that waits for
//                   the other soon has none left
//   fp8_pairs       half of B; A in the order of use; five stages                           26 KiB
//
// The two also go in step: what L2 has brought for one is not gone when the other asks.
//
// Template:  as in fp8_stages.cuh; BUFFERS is 0
#include "fp8_registers.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_pairs(
    const unsigned char* __restrict__ packed,  // m'/64 x steps pieces; m', k' are padded with zeros
    const __grid_constant__ TensorMap b, unsigned char* __restrict__ d,
    int pitch,                                // fp8_stages.cuh; bytes of a row of D
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder, of pairs of tiles
    int kept,                                 // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n,
    const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const Operands from{b, b, b, b};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    multiply_tiles<FromPointers<S>, S, 2, 40, 232, true>(
        PackedPairs{from, packed, steps, kept}, Clusters<2>{{high, wide, band}, steps},
        Registers<StoreRegisters<OUT, ROWS, COLUMNS, TURNED, EXTRA>>{d, pitch, scales});
}
