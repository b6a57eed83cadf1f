// wgmma_last_wave: wgmma_lean whose last wave, where it is at most half full, is cut along k by clusters of two.
//
//   whole waves    block 0: tile 0, 132, ...      block 1: tile 1, 133, ...       each for itself
//   last wave      tile w:  block 0: first half of the steps ─┐
//                           block 1: second half ─────────────┴─ each adds the squares that it stores, from the other's
//                                                                shared memory
//
// Unlike stream-K, blocks stand at the same k while whole waves last, hence read what their neighbours read, and there is no
// workspace. The order of additions is fixed, so results repeat bit by bit.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "cluster.cuh"
#include "sparse_reader.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, bool EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_last_wave(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
    int whole,  // tiles that are not cut: of whole waves, or all; with steps = 1 all
    int kept,   // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n, int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    constexpr int SQUARES = BLOCKS * S::CHUNKS;
    static_assert(SQUARES % 2 == 0 && sizeof(S) >= S::M * N * 2, "the ring must have room for half of the sums");
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, EXTRA>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = warpgroup(), rank = blockIdx.x % 2;
    begin<GROUPS, STAGES>(from, full, empty);
    const int last = whole + blockIdx.x / 2, first = steps * rank / 2, end = steps * (rank + 1) / 2;

    int row, column;
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            const auto fill = [&](int tile, int step, int to) {
                order.find(tile, row, column);
                for (; step < to; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.load(from, at.stage, row * S::M, column * N, step * S::K, &full[at.stage], hints);
                }
            };
            for (int tile = blockIdx.x; tile < whole; tile += gridDim.x) fill(tile, 0, steps);
            if (last < order.tiles()) fill(last, first, end);
        }
        return;  // the cluster's barrier counts only threads that are still there
    }
    take_registers<232>();
    const Reader<S> reader(ring, group, empty);
    typename S::Accumulators acc;
    for (int tile = blockIdx.x; tile < whole; tile += gridDim.x) {
        order.find(tile, row, column);
        reader.consume(acc, at, steps, full);
        out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, scale, 1 + group);
    }
    if (last < order.tiles()) {
        order.find(last, row, column);
        reader.consume(acc, at, end - first, full);
        named_barrier(2 + GROUPS, 128 * GROUPS);  // every warpgroup is done with the ring, whose memory now takes sums
        float4* sums = reinterpret_cast<float4*>(shared) + group * SQUARES * 4 * 128 + threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < SQUARES * 8; ++i) {  // squares 0, 2, ... are block 0's, the others block 1's
            const float* x = acc[0] + 4 * i;
            if (i / 8 % 2 != rank) sums[(i / 16 * 8 + i % 8) * 128] = make_float4(x[0], x[1], x[2], x[3]);
        }
        cluster_barrier();
#pragma unroll
        for (int square = 0; square < SQUARES; ++square) {
            if (square % 2 != rank) continue;
            float* mine = acc[0] + 32 * square;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float4 x = load_remote(sums + (square / 2 * 8 + i) * 128, rank ^ 1);
                mine[4 * i] += x.x, mine[4 * i + 1] += x.y, mine[4 * i + 2] += x.z, mine[4 * i + 3] += x.w;
            }
            const int r = row * S::M + (group * BLOCKS + square / S::CHUNKS) * 64, q = column * N + square % S::CHUNKS * 64;
            if (threadIdx.x % 128 == 0) tma_store_wait<0>();
            named_barrier(1 + group, 128);
            out[group].arrange(0, mine, r, q, scale);
            async_proxy_fence();
            named_barrier(1 + group, 128);
            if (threadIdx.x % 128 == 0) {
                tma_store(c, q, r, out[group].square[0]);
                tma_store_commit();
            }
        }
        cluster_barrier();  // nobody leaves while another reads its shared memory
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
