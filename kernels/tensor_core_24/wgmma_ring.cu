// wgmma_ring: wgmma_one_stage with a ring of stages, so that copies run ahead of the
// multiplication.
//
//   stage       0     1     2     3     0
//   copied    ├─────┤
//                   ├─────┤
//   multiplied      ├─ 0 ─┼─ 1 ─┼ ...      when step s has been issued, s - 1 is waited for and its
//                                          stage asked for again
//
// The multiplication of one step is always under way while the next is issued. The thread that asks
// for copies is one of those that multiply.
//
// Template:  as in sparse_stages.cuh and store.cuh; BLOCKS blocks of 64 rows for the one warpgroup
#include "sparse_stages.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int BLOCKS, int N, int STAGES, int EXTRA>
__global__ void __launch_bounds__(128)
    wgmma_ring(const __grid_constant__ TensorMap a,
               const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
               const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps,
               int high, int wide, int band,  // k in steps of 64; TileOrder; one block a tile
               float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
               int pitch)  // Scale: store.cuh
{
    using S = Stages<T, 1, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, 1, EXTRA>>(shared);
    __shared__ Barrier full[STAGES];
    int row, column;
    order.find(blockIdx.x, row, column);
    const auto ask = [&](int step) {
        if (threadIdx.x == 0)
            ring.load(
                from, step % STAGES, row * S::M, column * N, step * S::K, &full[step % STAGES]);
    };
    if (threadIdx.x == 0) {
        tma_prefetch(a), tma_prefetch(e), tma_prefetch(b), tma_prefetch(c);
        for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 1);
        barrier_init_fence();
    }
    for (int step = 0; step < min(STAGES - 1, steps); ++step) ask(step);
    __syncthreads();

    typename S::Accumulators acc;
    unsigned word[2][BLOCKS];
    Place<STAGES> at;
    for (int step = 0; step < steps; step += 2)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (step + half == steps) break;
            wait(&full[at.stage], at.parity);
            ring.multiply(acc, word[half], at.stage, 0, step + half > 0);
            wgmma_wait<1>();
            at.next();
            if (step + half + STAGES - 1 >= steps) continue;  // nothing is left to ask for
            __syncthreads();  // all four warps are done with the stage before
            ask(step + half + STAGES - 1);
        }
    wgmma_wait<0>();
    settle(acc);
    out->write(acc, c, row * S::M, column * N, scale, 1);
    if (threadIdx.x == 0) tma_store_wait<0>();
}
