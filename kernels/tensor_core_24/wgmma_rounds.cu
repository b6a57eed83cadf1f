// wgmma_rounds: wgmma_lean where k is whole rounds of the ring, so that the compiler knows each
// stage's place.
//
//   k = 4096, four stages   stage 0  1  2  3 │ 0  1  2  3 │ ... │ 0  1  2  3
//   64 steps, 16 rounds, and the next tile begins with stage 0, too
//
// Descriptors, barriers and words of metadata are then constants away from what is in registers.
//
// Template:  as in sparse_stages.cuh and store.cuh; STAGES is even
#include "roles.cuh"
#include "sparse_reader.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA,
          Major B = MN_MAJOR, bool COLUMN = false, bool PACKED = false>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_rounds(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64, a multiple of STAGES; TileOrder
    int kept,            // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch,   // Scale: store.cuh
    int pieces)  // Operands
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    const Operands from{a, e, b, c, pieces};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA, COLUMN>;
    multiply_tiles<InRounds<S>, S>(
        Tiled{from, kept}, Resident{{high, wide, band}, steps}, Squares<Out, Scale>{c, scale});
}
