// fp8_direct: fp8_packed whose C goes from registers to memory, so that all shared memory is ring
// and N any multiple of 8.
//
//   squares         sums ──► 8 or 16 KiB a warpgroup ──► copy engine
//                   waits for a square to be read; N % 64 = 0
//   from registers  sums ──► 16 bytes a lane (store_registers.cuh)
//                   waits for nobody; a fifth stage for 256 x 192
//
// The widths are there to fill waves: on 132 multiprocessors 256 x 192 of 4096 x 4096 is 352 tiles,
// three waves of which the last is two thirds full, and 256 x 176 is 384, three full ones. As for
// few columns: 64 x 16 reads no B that is not there.
//
// Template:  as in fp8_stages.cuh; BUFFERS is 0
#include "fp8_registers.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS,
          bool TURNED = false, int EXTRA = NOTHING>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_direct(
    const unsigned char* __restrict__ packed,  // m'/64 x steps pieces; m', k' are padded with zeros
    const __grid_constant__ TensorMap b, unsigned char* __restrict__ d,
    int pitch,                                // fp8_stages.cuh; bytes of a row of D
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder
    int kept,                                 // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n,
    const float* bias)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const Operands from{b, b, b, b};
    const Scales scales{scale_a, scale_b, scale_d, m, n, bias};
    multiply_tiles<FromPointers<S>, S, 1, 24, 240, true>(
        Packed<true>{from, packed, steps, kept}, Resident{{high, wide, band}, steps},
        Registers<StoreRegisters<OUT, ROWS, COLUMNS, TURNED, EXTRA>>{d, pitch, scales});
}
