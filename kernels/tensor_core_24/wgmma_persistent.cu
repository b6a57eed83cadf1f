// wgmma_persistent: one block for each SM, which goes from tile to tile.
//
//   producer     │ copies of tile 1 │ copies of tile 2     │        begins the next tile while this
//   warpgroups       │ multiply tile 1    │ store │ multiply tile 2  one is multiplied, so no tile
//                                                                  begins with an empty ring
//
// `band` is the order of the tiles (tile_order.cuh): in bands of many rows, what the SMs read at a
// time is about as high as wide, in bytes. `kept` is the operand that L2 is asked to keep: A, say,
// which the next tiles of the band read again.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sparse_stages.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1)
    wgmma_persistent(const __grid_constant__ TensorMap a,
                     const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
                     const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
                     int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
                     int kept,  // 1: L2 is asked to keep A, 2: B, 0: neither
                     float alpha, float beta, const unsigned short* c_in, const float* bias, int m,
                     int n, int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA>;
    multiply_tiles<FromPointers<S>, S>(
        Tiled{from, kept}, Resident{{high, wide, band}, steps}, Squares<Out, Scale>{c, scale});
}
