// fp8_packed: fp8_persistent with A in the order of use, values and metadata side by side.
//
//   A row-major     row 0  ████ ─ ─ ─       a stage takes 64 bytes, half of a line of L2, from each
//                   row 1  ████ ─ ─ ─       of M rows, and the words of the metadata from another
//                                           place
//   packed          ████████████████ ██     64 rows x 128 columns with their words: 5120 bytes, one
//                                           request
//
// As wgmma_packed, which leaves the metadata where it is. A cold A comes from DRAM in pages, not in
// halves of lines.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "roles.cuh"
#include "store_eight.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_packed(
    const unsigned char* __restrict__ packed,  // m'/64 x steps pieces; m', k' are padded with zeros
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,  // fp8_stages.cuh
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder
    int kept,                                 // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n,
    const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const Operands from{b, b, b, d};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    using Out = StoreEight<BUFFERS, OUT, ROWS, COLUMNS, TURNED, EXTRA>;
    multiply_tiles<FromPointers<S>, S, 1, 24, 240, true>(
        Packed<true>{from, packed, steps, kept}, Resident{{high, wide, band}, steps},
        Squares<Out, Scales>{d, scales});
}
