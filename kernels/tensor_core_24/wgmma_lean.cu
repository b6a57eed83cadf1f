// wgmma_lean: wgmma_persistent with half of the instructions around each multiplication
// (sparse_reader.cuh).
//
// A step is two to four wgmma.sp of a warpgroup, for hundreds of clocks, and what a warp does
// besides is some dozens of instructions of one or two clocks. They cost nothing while another step
// is under way, one should think; but they cost energy, and a stage is handed back, hence filled
// again, only when its warps have got through them.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sparse_reader.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA,
          Major B = MN_MAJOR, bool COLUMN = false, bool PACKED = false>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1)
    wgmma_lean(const __grid_constant__ TensorMap a,
               const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
               const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps,
               int high, int wide, int band,  // k in steps of 64; TileOrder
               int kept,                      // 1: L2 is asked to keep A, 2: B, 0: neither
               float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
               int pitch,   // Scale: store.cuh
               int pieces)  // Operands
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES, B, PACKED>;
    const Operands from{a, e, b, c, pieces};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA, COLUMN>;
    multiply_tiles<Counted<S>, S>(
        Tiled{from, kept}, Resident{{high, wide, band}, steps}, Squares<Out, Scale>{c, scale});
}
