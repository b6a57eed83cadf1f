// fp8_refilling: 192 x 256 of C, three warpgroups that refill the ring themselves, in turn.
//
//   warp 0     multiply 0 │ multiply 1 │ refill │ multiply 2 │ ...    the stage of the step before
//   warp 1     multiply 0 │ multiply 1 │ multiply 2 │ refill │ ...    the last, which by then all
//                                                                     twelve warps have handed back
//
// A fourth warpgroup that copies would leave 128 registers a thread at launch, and an instruction
// of 256 columns asks for 155; three share the SM's registers, 168 each. A tile of 192 x 256 has as
// many sums as one of 256 x 192, but B, which every warpgroup reads from shared memory, is read
// three times and not four.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "refilling.cuh"
#include "store_eight.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__(GROUPS * 128, 1)
    fp8_refilling(const __grid_constant__ TensorMap a,
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
    multiply_refilling<FromPointers<S>, S>(
        Tiled{from, kept}, {high, wide, band}, steps, Squares<Out, Scales>{d, scales});
}
