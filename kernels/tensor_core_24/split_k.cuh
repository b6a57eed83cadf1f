// A cluster of SPLITS blocks shares the steps of one tile, and adds the sums through each other's
// shared memory: the tile scheduler and the epilogue of that (roles.cuh).
//
// No workspace in global memory, no atomics, and the order of additions is fixed, so results repeat
// bit by bit.
#pragma once

#include "roles.cuh"

// The block's share of the steps of its cluster's tile.
template <int SPLITS>
struct Share {
    Part part;
    __device__ __forceinline__ Share(const TileOrder& order, int steps)
    {
        const int rank = blockIdx.x % SPLITS;
        order.find(blockIdx.x / SPLITS, part.row, part.column);
        part.from = (long long)steps * rank / SPLITS,
        part.to = (long long)steps * (rank + 1) / SPLITS;
    }
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        work(part);
    }
};

// Each block of a cluster adds the sums of all, of the squares that are its own.
template <int SPLITS, class Out, class Scaled>
struct Exchanged {
    const TensorMap& c;
    const Scaled& scale;
    __device__ __forceinline__ void prefetch() const { tma_prefetch(c); }
    template <class S>
    __device__ __forceinline__ void
    store(unsigned char* shared, typename S::Accumulators& acc, int group, const Part& part) const
    {
        constexpr int WIDE = S::N < 64 ? S::N : 64, CHUNKS = S::N / WIDE,
                      SQUARES = S::BLOCKS * CHUNKS, EACH = WIDE / 8;
        static_assert(
            sizeof(S) >= S::M * S::N * 4, "the ring must have room for the sums: more stages");
        Out* out = after<S, Out>(shared);
        // Every warpgroup is done with the ring, whose memory now takes the sums.
        named_barrier(2 + S::GROUPS, 128 * S::GROUPS);
        float4* sums =
            reinterpret_cast<float4*>(shared) + group * SQUARES * EACH * 128 + threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < SQUARES * EACH; ++i) {
            const float* x = acc[0] + 4 * i;
            sums[i * 128] = make_float4(x[0], x[1], x[2], x[3]);
        }
        cluster_barrier();
        for (int square = blockIdx.x % SPLITS; square < SQUARES; square += SPLITS) {
            float sum[WIDE / 2] = {};
#pragma unroll(SPLITS > 3 ? 1 : SPLITS)  // what is on its way fills registers
            for (int block = 0; block < SPLITS; ++block)
#pragma unroll
                for (int i = 0; i < EACH; ++i) {
                    const float4 x = load_remote(sums + (square * EACH + i) * 128, block);
                    sum[4 * i] += x.x, sum[4 * i + 1] += x.y, sum[4 * i + 2] += x.z,
                        sum[4 * i + 3] += x.w;
                }
            out[group].template write_square<WIDE>(
                sum, c, part.row * S::M + (group * S::BLOCKS + square / CHUNKS) * 64,
                part.column * S::N + square % CHUNKS * WIDE, scale, 1 + group);
        }
    }
    __device__ __forceinline__ void finish() const
    {
        if (threadIdx.x % 128 == 0) tma_store_wait<0>();
        cluster_barrier();  // nobody leaves while another reads its shared memory
    }
};
