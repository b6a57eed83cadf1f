// fp8_persistent: wgmma_persistent on 8-bit floats: e4m3 2:4 times e4m3, B with k contiguous.
//
//   BF16   a step of 64 columns of A:  128 bytes of B for each column of C  m64nNk32, B transposed
//                                                                           by the instruction
//   e4m3   a step of 128 columns:      128 bytes of B for each column of C  m64nNk64, B^T row-major
//
// The same bytes of a stage are twice the multiplications in as many cycles of the tensor cores, so
// that all else, the ring, the roles of the warpgroups and the order of the tiles, stays as it was.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "roles.cuh"
#include "store_eight.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1)
    fp8_persistent(const __grid_constant__ TensorMap a,
                   const __grid_constant__ TensorMap e,  // operands: fp8_stages.cuh
                   const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,
                   int steps, int high, int wide, int band,  // k in steps of 128; TileOrder
                   int kept,                                 // Hints
                   const float* scale_a, const float* scale_b, const float* scale_d, int m, int n,
                   const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, d};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    using Out = StoreEight<BUFFERS, OUT, ROWS, COLUMNS, TURNED, EXTRA>;
    multiply_tiles<FromPointers<S>, S, 1, 24, 240, true>(
        Tiled{from, kept}, Resident{{high, wide, band}, steps}, Squares<Out, Scales>{d, scales});
}
