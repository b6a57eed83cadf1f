// wgmma_specialised: one warp only asks for copies, two warpgroups only multiply, and share what is
// copied.
//
//   producer      wait empty[s] ── copy ──► full[s]                    gives its registers away
//   warpgroup 0   wait full[s] ── multiply rows 0 to 63 ──► empty[s]   and takes more than its
//   warpgroup 1   wait full[s] ── multiply rows 64 to 127 ──► empty[s] share of them
//
// Nobody who multiplies stops to ask, and no barrier holds all warps. The sums of 128 x 256 of C
// take 32768 registers, half of those of the SM; B is read from L2 once for both warpgroups.
//
// Template:  as in sparse_stages.cuh; BUFFERS: squares that a warpgroup stores through
#include "roles.cuh"
#include "sparse_stages.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_specialised(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64; TileOrder; one block a tile
    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const Scale scale{alpha};
    using Out = Store<T, BUFFERS, false>;
    multiply_tiles<FromPointers<S>, S>(
        Plain{from}, OneTile({high, wide, band}, steps), Squares<Out, Scale>{c, scale});
}
