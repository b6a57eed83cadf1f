// wgmma_stream_k: every block gets the same number of steps, however the tiles divide among the
// SMs.
//
// Tiles in whole waves leave SMs idle in the last one: 352 tiles on 132 SMs are 2.67 waves that
// take the time of 3. Here the first tiles, more than one wave and less than two, are cut along k
// into equal shares, one for each block; what remains are whole waves.
//
//   block        0              1              2            steps of the shared tiles, one after
//   share   ├──────────────┼──────────────┼──────────────┤  the other
//   tile    ├─────────┼─────────┼─────────┼─────────┼─ ─ ─
//                  head of tile 1: block 0, tail: block 1
//
// A share is at least a tile long, so a tile has at most two parts. A block does its share from the
// end: first the head of a tile, whose FP32 sums it leaves in a workspace, at last the tail of
// another, to which it adds what the block before it has left. By then that has long been there;
// and as a block waits for an earlier one alone, it never waits for a block that cannot begin.
// Launches need no clearing in between, and may overlap (handover.cuh).
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "handover.cuh"
#include "roles.cuh"
#include "sparse_stages.cuh"

// A block's share of the tiles that are cut, at most three parts since it is less than two tiles
// long, from the last to the first, then whole tiles.
struct Shares {
    TileOrder order;
    int steps, shared_tiles;
    Part part[3];
    int count;
    // By one thread, in shared memory.
    __device__ __forceinline__ void find(const TileOrder& of, int all_steps, int cut_tiles)
    {
        order = of, steps = all_steps, shared_tiles = cut_tiles, count = 0;
        const unsigned all = shared_tiles * steps, block = blockIdx.x, length = all / gridDim.x,
                       rest = all % gridDim.x;
        unsigned step = block * length + min(block, rest), end = step + length + (block < rest);
        for (; step < end; ++count) {
            Part& x = part[count];
            x.from = step % steps, x.to = min((unsigned)steps, x.from + end - step),
            x.cut = x.to - x.from < steps;
            order.find(step / steps, x.row, x.column);
            step += x.to - x.from;
        }
    }
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        for (int i = 0;; ++i) {
            Part next{0, 0, 0, steps};
            if (i < count) {
                next = part[count - 1 - i];
            } else {
                const int tile = shared_tiles + (i - count) * (int)gridDim.x + (int)blockIdx.x;
                if (tile >= order.tiles()) break;
                order.find(tile, next.row, next.column);
            }
            work(next);
        }
    }
};

// A head's sums are left for the block after this one; a tail adds what the block before has left.
template <class Out>
struct HandedOver : Squares<Out, Scale> {
    int steps;
    float4* partial;
    Handover* handovers;
    template <class S>
    __device__ __forceinline__ void
    store(unsigned char* shared, typename S::Accumulators& acc, int group, const Part& part) const
    {
        constexpr int WORDS = S::BLOCKS * S::N / 8;  // float4 of a thread
        const int slot = (blockIdx.x - (part.from > 0)) * S::GROUPS +
                         group;  // this block's head, or the one before's
        float4* sums = partial + (size_t)slot * WORDS * 128 + threadIdx.x % 128;
        float* mine = acc[0];
        if (part.to < steps) {
#pragma unroll
            for (int i = 0; i < WORDS; ++i)
                __stcg(sums + i * 128,
                       make_float4(mine[4 * i], mine[4 * i + 1], mine[4 * i + 2], mine[4 * i + 3]));
            __threadfence();
            named_barrier(1 + group, 128);
            if (threadIdx.x % 128 == 0) leave(handovers + slot);
            return;
        }
        if (part.from > 0) {
            await(handovers + slot);
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                const float4 x = __ldcg(sums + i * 128);
                mine[4 * i] += x.x, mine[4 * i + 1] += x.y, mine[4 * i + 2] += x.z,
                    mine[4 * i + 3] += x.w;
            }
            named_barrier(1 + group, 128);  // none of the warpgroup is waiting
            if (threadIdx.x % 128 == 0) take(handovers + slot);
        }
        Squares<Out, Scale>::template store<S>(shared, acc, group, part);
    }
};

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, int EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_stream_k(
    const __grid_constant__ TensorMap a,
    const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c, int steps, int high,
    int wide, int band,  // k in steps of 64; TileOrder
    int shared_tiles,    // tiles that are cut along k: 0, or from gridDim.x to 2 gridDim.x - 1
    float4* __restrict__ partial,  // workspace: M x N float32 for each block
    Handover* handovers,  // workspace: one for each warpgroup of each block, zeros at first
    int kept,             // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n,
    int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    using Out = Store<T, BUFFERS, EXTRA>;
    __shared__ Shares shares;
    if (threadIdx.x == 0) shares.find({high, wide, band}, steps, shared_tiles);
    __syncthreads();
    multiply_tiles<FromPointers<S>, S>(
        Tiled{from, kept}, shares, HandedOver<Out>{{c, scale}, steps, partial, handovers});
}
