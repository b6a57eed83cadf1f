// wgmma_gpc: wgmma_lean in which tiles that follow each other go to the SMs of one GPC.
//
//   blocks as launched   block 0: SM 0, block 1: SM 2, block 2: SM 16, ...
//                        neighbouring tiles anywhere on the chip
//   here                 the SM's place among those of its GPC is the number
//                        a GPC's 16 SMs have about 8 x 2 tiles side by side
//
// Which SMs form a GPC no instruction tells; `gpcs.cu` finds it out. That every place is taken by
// one block is the launch's promise: as many blocks as SMs, one fits on an SM, and all run at the
// same time (a cooperative launch, which was seen to wait until they can: a test lets another
// kernel hold a third of the SMs meanwhile). CUDA promises no more than that they could. So this is
// for trials, and the tuner does not choose it.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "roles.cuh"
#include "sm.cuh"
#include "sparse_reader.cuh"

// As Resident, from the block's place on.
struct Placed {
    TileOrder order;
    int steps;
    const int& place;
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        for (int tile = place; tile < order.tiles(); tile += gridDim.x) {
            Part part{0, 0, 0, steps};
            order.find(tile, part.row, part.column);
            work(part);
        }
    }
};

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_gpc(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,              // k in steps of 64; TileOrder
    const int* __restrict__ places,  // of each SM, by its number: 0 to gridDim.x - 1, GPC by GPC
    int kept,                        // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const Scale scale{alpha};
    using Out = Store<T, BUFFERS, false>;
    __shared__ int place;
    // One thread asks, for all: a block that the driver puts aside and goes on with elsewhere still
    // has one place.
    if (threadIdx.x == GROUPS * 128) place = places[sm_number()];
    multiply_tiles<Counted<S>, S>(
        Tiled{from, kept}, Placed{{high, wide, band}, steps, place}, Squares<Out, Scale>{c, scale});
}
