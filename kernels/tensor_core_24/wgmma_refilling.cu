// wgmma_refilling: 192 x 256 of C, three warpgroups that refill the ring themselves, in turn.
//
//   warp 0     multiply 0 │ multiply 1 │ refill │ multiply 2 │ ...    the stage of the step before
//   warp 1     multiply 0 │ multiply 1 │ multiply 2 │ refill │ ...    the last, which by then all
//                                                                     twelve warps have handed back
//
// An instruction of 256 columns asks for 155 registers a thread. A fourth warpgroup that copies, or
// even a single warp more, would leave 128 at launch (wgmma_three.cu has one); three warpgroups
// alone have 168 each. Of the tiles that fit, this one reads least from shared memory for each
// element of C: all of B for every 64 rows, as any, but A's 64 rows for 256 columns; and B arrives
// once for 192 rows.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "refilling.cuh"
#include "sparse_reader.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__(GROUPS * 128, 1)
    wgmma_refilling(const __grid_constant__ TensorMap a,
                    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
                    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
                    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
                    int kept,  // 1: L2 is asked to keep A, 2: B, 0: neither
                    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const Scale scale{alpha};
    using Out = Store<T, BUFFERS, false>;
    multiply_refilling<Counted<S>, S>(
        Tiled{from, kept}, {high, wide, band}, steps, Squares<Out, Scale>{c, scale});
}
