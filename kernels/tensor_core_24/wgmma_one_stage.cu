// wgmma_one_stage: the plainest kernel on wgmma.sp. One warpgroup, one stage: ask for it, wait,
// multiply, wait.
//
// What hides the waiting is other blocks on the same SM, three of them by their registers. Each
// multiplies 128 x 128 of C.
//
// Template:  as in sparse_stages.cuh; BLOCKS blocks of 64 rows for the one warpgroup
#include "sparse_stages.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int BLOCKS, int N>
__global__ void __launch_bounds__(128)
    wgmma_one_stage(const __grid_constant__ TensorMap a,
                    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
                    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
                    int steps, int high, int wide,
                    int band,  // k in steps of 64; TileOrder; one block a tile
                    float alpha)
{
    using S = Stages<T, 1, BLOCKS, N, 1>;
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& stage = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, 1, false>>(shared);
    __shared__ Barrier full;
    if (threadIdx.x == 0) {
        barrier_init(&full, 1);
        barrier_init_fence();
    }
    __syncthreads();

    int row, column;
    order.find(blockIdx.x, row, column);
    typename S::Accumulators acc;
    unsigned word[BLOCKS];
    for (int step = 0; step < steps; ++step) {
        if (threadIdx.x == 0) stage.load(from, 0, row * S::M, column * N, step * S::K, &full);
        wait(&full, step % 2);
        stage.multiply(acc, word, 0, 0, step > 0);
        wgmma_wait<0>();
        __syncthreads();  // all four warps are done with the stage
    }
    settle(acc);
    out->write(acc, c, row * S::M, column * N, {alpha}, 1);
    if (threadIdx.x == 0) tma_store_wait<0>();
}
