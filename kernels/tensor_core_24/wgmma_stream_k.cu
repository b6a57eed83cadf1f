// wgmma_stream_k: every block gets the same number of steps, however the tiles divide among the SMs.
//
// Tiles in whole waves leave SMs idle in the last one: 352 tiles on 132 SMs are 2.67 waves that take the time of 3. Here
// the first tiles, more than one wave and less than two, are cut along k into equal shares, one for each block; what
// remains are whole waves.
//
//   block        0              1              2                  steps of the shared tiles, one after the other
//   share   ├──────────────┼──────────────┼──────────────┤
//   tile    ├─────────┼─────────┼─────────┼─────────┼─ ─ ─
//                  head of tile 1: block 0, tail: block 1
//
// A share is at least a tile long, so a tile has at most two parts. A block does its share from the end: first the head of a
// tile, whose FP32 sums it leaves in a workspace, at last the tail of another, to which it adds what the block before it
// has left. By then that has long been there; and as a block waits for an earlier one alone, it never waits for a block
// that cannot begin. Launches need no clearing in between, and may overlap (handover.cuh).
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "handover.cuh"
#include "sparse_stages.cuh"
#include "store.cuh"
#include "tile_order.cuh"

struct Part {
    int tile, from, to;  // steps from <= s < to of the tile
};

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, bool EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_stream_k(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
    int shared_tiles,               // tiles that are cut along k: 0, or from gridDim.x to 2 gridDim.x - 1
    float4* __restrict__ partial,   // workspace: M x N float32 for each block
    Handover* handovers,            // workspace: one for each warpgroup of each block, zeros before the first launch
    int kept,  // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n, int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, EXTRA>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    __shared__ Part share[3];  // less than two tiles long, so it touches three at most
    __shared__ int shares;
    const int group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        const unsigned all = shared_tiles * steps, block = blockIdx.x, length = all / gridDim.x, rest = all % gridDim.x;
        unsigned step = block * length + min(block, rest), end = step + length + (block < rest);
        for (shares = 0; step < end; ++shares) {
            const int tile = step / steps, from = step % steps, to = min((unsigned)steps, from + end - step);
            share[shares] = {tile, from, to};
            step += to - from;
        }
    }
    begin<GROUPS, STAGES>(from, full, empty);
    __syncthreads();

    const auto part_number = [&](int i) {  // the shares from the last to the first, then whole tiles
        if (i < shares) return share[shares - 1 - i];
        return Part{shared_tiles + (i - shares) * (int)gridDim.x + (int)blockIdx.x, 0, steps};
    };

    Place<STAGES> at;
    int row, column;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            for (int i = 0;; ++i) {
                const Part part = part_number(i);
                if (part.tile >= order.tiles()) break;
                order.find(part.tile, row, column);
                for (int step = part.from; step < part.to; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.load(from, at.stage, row * S::M, column * N, step * S::K, &full[at.stage], hints);
                }
            }
        }
        return;
    }
    take_registers<232>();
    typename S::Accumulators acc;
    constexpr int WORDS = BLOCKS * N / 8;  // float4 of a thread
    for (int i = 0;; ++i) {
        const Part part = part_number(i);
        if (part.tile >= order.tiles()) break;
        ring.consume(acc, at, part.to - part.from, group, full, empty);
        const int slot = (blockIdx.x - (part.from > 0)) * GROUPS + group;  // this block's head, or the one before's
        float4* sums = partial + (size_t)slot * WORDS * 128 + threadIdx.x % 128;
        float* mine = acc[0];
        if (part.to < steps) {  // a head: for the block after this one
#pragma unroll
            for (int i = 0; i < WORDS; ++i)
                __stcg(sums + i * 128, make_float4(mine[4 * i], mine[4 * i + 1], mine[4 * i + 2], mine[4 * i + 3]));
            __threadfence();
            named_barrier(1 + group, 128);
            if (threadIdx.x % 128 == 0) leave(handovers + slot);
            continue;
        }
        if (part.from > 0) {  // a tail: the head was the block before's
            await(handovers + slot);
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                const float4 x = __ldcg(sums + i * 128);
                mine[4 * i] += x.x, mine[4 * i + 1] += x.y, mine[4 * i + 2] += x.z, mine[4 * i + 3] += x.w;
            }
            named_barrier(1 + group, 128);  // none of the warpgroup is waiting
            if (threadIdx.x % 128 == 0) take(handovers + slot);
        }
        order.find(part.tile, row, column);
        out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, scale, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
