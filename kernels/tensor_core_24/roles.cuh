// A block of a Hopper kernel: one thread asks for stages, warpgroups multiply them, tile after
// tile.
//
//   producer      tile scheduler ─► loader ──► full[s]        gives its registers away
//   warpgroups    tile scheduler    full[s] ─► main loop ─► empty[s] ─► epilogue
//
//   axis            what it says                      kinds
//   loader          how a stage is filled             Plain, Tiled, Packed, Shared; each layout's
//                                                     stages have theirs
//   main loop       how stages are multiplied         FromPointers, Counted, InRounds
//                                                     (sparse_reader.cuh)
//   tile scheduler  which tiles of C are the block's  OneTile, Resident, Clusters, a kernel's own
//   epilogue        what becomes of the sums          Squares
//
// A kernel names one of each: that is all that it says, beside its idea.
#pragma once

#include "cluster.cuh"
#include "consume.cuh"
#include "operands.cuh"
#include "store.cuh"
#include "tile_order.cuh"

// ---- tile schedulers: each(work) calls work(part) for all that a block multiplies

// Steps from <= step < to of the tile (row, column), in units of tiles; cut: whether its sums are a
// part of the tile's.
struct Part {
    int row, column, from, to;
    bool cut = false;
};

struct OneTile {
    Part part;
    __device__ __forceinline__ OneTile(const TileOrder& order, int steps) : part{0, 0, 0, steps}
    {
        order.find(blockIdx.x, part.row, part.column);
    }
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        work(part);
    }
};

// Blocks that stay, one for each SM.
struct Resident {
    TileOrder order;
    int steps;
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
            Part part{0, 0, 0, steps};
            order.find(tile, part.row, part.column);
            work(part);
        }
    }
};

// Clusters that stay, of SHARE blocks one below the other; order: of what a cluster multiplies at a
// time.
template <int SHARE>
struct Clusters {
    TileOrder order;
    int steps;
    int rank = blockIdx.x % SHARE, clusters = gridDim.x / SHARE;
    template <class Work>
    __device__ __forceinline__ void each(Work work) const
    {
        for (int tall = blockIdx.x / SHARE; tall < order.tiles(); tall += clusters) {
            Part part{0, 0, 0, steps};
            order.find(tall, part.row, part.column);
            part.row = SHARE * part.row + rank;
            work(part);
        }
    }
};

// ---- loaders: load(ring, stage, row, column, step, full, hints()) by one thread; row and column
// in units of tiles; kept: Hints

// Nothing is said to L2.
struct Plain {
    const Operands& from;
    struct Silent {};
    __device__ __forceinline__ void prefetch() const
    {
        tma_prefetch(from.a), tma_prefetch(from.e), tma_prefetch(from.b);
    }
    __device__ __forceinline__ Silent hints() const { return {}; }
    template <class S>
    __device__ __forceinline__ void
    load(S& ring, int s, int row, int column, int step, Barrier* full, Silent) const
    {
        ring.load(from, s, row * S::M, column * S::N, step * S::K, full);
    }
};

struct Tiled {
    const Operands& from;
    int kept;
    __device__ __forceinline__ void prefetch() const
    {
        tma_prefetch(from.a), tma_prefetch(from.e), tma_prefetch(from.b);
    }
    __device__ __forceinline__ Hints hints() const { return Hints(kept); }
    template <class S>
    __device__ __forceinline__ void
    load(S& ring, int s, int row, int column, int step, Barrier* full, const Hints& hints) const
    {
        ring.load(from, s, row * S::M, column * S::N, step * S::K, full, hints);
    }
};

// A in the order of use. META: whether its metadata is there, too, and has no tensor map.
template <bool META>
struct Packed {
    const Operands& from;
    const unsigned char* packed;
    int steps, kept;  // steps: pieces of a row of them
    __device__ __forceinline__ void prefetch() const
    {
        if (!META) tma_prefetch(from.e);
        tma_prefetch(from.b);
    }
    __device__ __forceinline__ Hints hints() const { return Hints(kept); }
    template <class S>
    __device__ __forceinline__ void
    load(S& ring, int s, int row, int column, int step, Barrier* full, const Hints& hints) const
    {
        ring.load_packed(
            from, packed, steps, s, row * S::M, column * S::N, step * S::K, full, hints);
    }
};

// B by the blocks of a cluster for each other.
template <int SHARE>
struct Shared {
    const Operands& from;
    int kept;
    __device__ __forceinline__ void prefetch() const
    {
        tma_prefetch(from.a), tma_prefetch(from.e), tma_prefetch(from.b);
    }
    __device__ __forceinline__ Hints hints() const { return Hints(kept); }
    template <class S>
    __device__ __forceinline__ void
    load(S& ring, int s, int row, int column, int step, Barrier* full, const Hints& hints) const
    {
        ring.template load_share<SHARE>(
            from, s, row * S::M, column * S::N, step * S::K, full, hints, blockIdx.x % SHARE);
    }
};

// Both.
struct PackedPairs {
    const Operands& from;
    const unsigned char* packed;
    int steps, kept;
    __device__ __forceinline__ void prefetch() const { tma_prefetch(from.b); }
    __device__ __forceinline__ Hints hints() const { return Hints(kept); }
    template <class S>
    __device__ __forceinline__ void
    load(S& ring, int s, int row, int column, int step, Barrier* full, const Hints& hints) const
    {
        ring.load_packed_share(from, packed, steps, s, row * S::M, column * S::N, step * S::K, full,
                               hints, blockIdx.x % 2);
    }
};

// ---- main loops: (acc, steps, full, hand_back), of a warpgroup that has its number from group()

template <class S>
struct FromPointers {
    const S& ring;
    int number;
    Barrier* empty;
    Place<S::STAGES> at;
    static __device__ __forceinline__ int group() { return threadIdx.x / 128; }
    __device__ __forceinline__ FromPointers(const S& ring, int number, Barrier* empty)
        : ring(ring), number(number), empty(empty)
    {
    }
    __device__ __forceinline__ void
    operator()(typename S::Accumulators& acc, int steps, Barrier* full)
    {
        ring.consume(acc, at, steps, number, full, empty);
    }
    template <class HandBack>
    __device__ __forceinline__ void
    operator()(typename S::Accumulators& acc, int steps, Barrier* full, HandBack hand_back)
    {
        ring.consume(acc, at, steps, number, full, hand_back);
    }
    __device__ __forceinline__ void hand_back(int stage) const { hand_back_warp(&empty[stage]); }
};

// ---- epilogues: what a warpgroup does with its sums, and at last

// Through squares of shared memory, which the copy engine writes. Out: store.cuh, store_eight.cuh.
template <class Out, class Scaled>
struct Squares {
    const TensorMap& c;
    const Scaled& scale;
    __device__ __forceinline__ void prefetch() const { tma_prefetch(c); }
    template <class S>
    __device__ __forceinline__ void
    store(unsigned char* shared, typename S::Accumulators& acc, int group, const Part& part) const
    {
        after<S, Out>(shared)[group].write(
            acc, c, part.row * S::M + group * S::BLOCKS * 64, part.column * S::N, scale, 1 + group);
    }
    __device__ __forceinline__ void finish() const
    {
        if (threadIdx.x % 128 == 0) tma_store_wait<0>();
    }
};

// ---- the block

// SHARE: blocks of a cluster that load for each other. GIVE, TAKE: registers of a thread after
// launch; 0: as before. ROLLED: the producer's loop stays one.
template <class Loop, class S, int SHARE = 1, int GIVE = 40, int TAKE = 232, bool ROLLED = false,
          class Loader, class Tiles, class Epilogue>
__device__ __forceinline__ void
multiply_tiles(const Loader& loader, const Tiles& tiles, const Epilogue& epilogue)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    __shared__ Barrier full[S::STAGES], empty[S::STAGES];
    const int group = Loop::group();
    ring_begin<S::GROUPS, S::STAGES>(
        full, empty, 1, SHARE * 4 * S::GROUPS, [&] {  // handed back by every warp of all blocks
            loader.prefetch();
            epilogue.prefetch();
        });
    if (SHARE > 1) cluster_barrier();  // the other blocks' barriers are there

    if (group == S::GROUPS) {
        if constexpr (GIVE > 0) give_registers<GIVE>();
        if (threadIdx.x == S::GROUPS * 128) {
            const auto hints = loader.hints();
            Place<S::STAGES> at;
            tiles.each([&](const Part& part) {
                const auto fill = [&](int step) {
                    wait(&empty[at.stage],
                         at.parity ^ 1);  // the first round finds every stage empty
                    loader.load(
                        ring, at.stage, part.row, part.column, step, &full[at.stage], hints);
                    at.next();
                };
                if constexpr (ROLLED)
#pragma unroll 1
                    for (int step = part.from; step < part.to; ++step) fill(step);
                else
                    for (int step = part.from; step < part.to; ++step) fill(step);
            });
        }
        if (SHARE > 1) cluster_barrier();
        return;  // other barriers of a cluster count only threads that are still there
    }
    if constexpr (TAKE > 0) take_registers<TAKE>();
    Loop loop(ring, group, empty);
    typename S::Accumulators acc;
    tiles.each([&](const Part& part) {
        if constexpr (SHARE == 1) loop(acc, part.to - part.from, full);
        else
            loop(acc, part.to - part.from, full, [&](int stage) {
                __syncwarp();
                if (threadIdx.x % 32 < SHARE) arrive_remote(&empty[stage], threadIdx.x % 32);
            });
        epilogue.template store<S>(shared, acc, group, part);
    });
    epilogue.finish();
    if (SHARE > 1) cluster_barrier();  // nobody leaves while another copies into its shared memory
}
