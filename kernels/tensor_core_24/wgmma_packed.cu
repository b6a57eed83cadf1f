// wgmma_packed: wgmma_persistent with A in the order of use.
//
//   A row-major     row 0  ████ ─ ─ ─       a stage takes 64 bytes, half of a line of L2, from each
//                   row 1  ████ ─ ─ ─       of M rows: as many requests, and the other half of the
//                                           line again in the next step
//   packed          ████████████████        64 rows x 64 columns side by side, 4096 bytes, one
//                                           request
//
// A is the weight: it is compressed once and read often, so its order is ours to choose. It is
// swizzled beforehand as the tensor cores want it in shared memory (unit u of row r at u ^ r / 2 %
// 4, four units of 16 bytes a row).
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sparse_stages.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_packed(
    const unsigned char* __restrict__ packed,  // m'/64 x k'/64 pieces of 4 KiB, padded with zeros
    const __grid_constant__ TensorMap e,       // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64; TileOrder
    int kept,            // 1: L2 is asked to keep A, 2: B
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{e, e, b, c};  // A has no tensor map
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA>;
    multiply_tiles<FromPointers<S>, S>(
        Packed<false>{from, packed, steps, kept}, Resident{{high, wide, band}, steps},
        Squares<Out, Scale>{c, scale});
}
