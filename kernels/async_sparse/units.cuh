// A block of unit_ring.cu or gated.cu: it stays, claims tiles, and multiplies them from rings of
// units, each filled and freed alone.
//
//   warp 9        claims a tile, looks up its block row ──► slot of a queue
//   warp 8        A of a step ──► shared ring
//                 B of a step for each warpgroup ──► private ring, in turns (loader.cuh)
//   warpgroup 0   wait shared, private ── wgmma ──► free both ... round, store  at its own pace
//   warpgroup 1   wait shared, private ── wgmma ──► free both ... round, store
//
// WIDE tiles (64 x 2N): both warpgroups read the same A, and each N columns of B. TALL tiles (128 x
// N), for blocks of 128 rows: both read the same B, and each 64 rows of A. What both read is in the
// shared ring, the rest in the private one: a unit is loaded again as soon as the one warpgroup
// that read it has left it, and half a step of prefetch more fits than in stages. Tiles without
// blocks go out as copies of one box of zeros.
//
// Template:  Gate    Slot, of the queue
//                    GATED, whether a tile is the product of its blocks up to Slot::split() and of
//                    the others, element by element, after the first went through of(x, y), two at
//                    a time
//            T, B, N, P  as in step.cuh; COLUMN, BUFFERS as in output.cuh
//            TALL    whether tiles are 128 x N
//            SHARED, PRIVATE  units of the two rings
#pragma once

#include "loader.cuh"
#include "output.cuh"

// The first column of C of a warpgroup.
template <bool TALL, int N>
__device__ __forceinline__ int column_of(int panel, int mine)
{
    return TALL ? panel * N : (2 * panel + mine) * N;
}

// The machine code of both kernels depends on this order, on arguments by value, and on `multiply`,
// a function for GATED alone.
template <class Gate, Dtype T, Major B, bool COLUMN, bool TALL, int N, int SHARED, int PRIVATE,
          int BUFFERS, int P>
__device__ __forceinline__ void multiply_tiles(
    const TensorMap& a, const TensorMap& b, const TensorMap& c,  // as unit_ring.cu describes them
    const int4* rows, const int* col_idx,
    unsigned* counter,                // Tiles; Bcsr; two zeros: tiles claimed, blocks that are done
    int high, int panels, int group,  // Tiles
    int steps)  // of a block: its bytes of k / 128; 1 where P blocks share one
{
    static_assert(SHARED >= 2 && PRIVATE >= 3 && BUFFERS >= 1,
                  "rings have at least 2 and 3 units, since one is held");
    constexpr bool GATED = Gate::GATED;
    using Slot = typename Gate::Slot;
    using Out = Output<T, COLUMN, N, BUFFERS>;
    constexpr int B_BYTES = N * 128, SHARED_BYTES = TALL ? B_BYTES : A_BYTES,
                  PRIVATE_BYTES = TALL ? A_BYTES : B_BYTES;
    constexpr int QUEUE = 2;
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char* const shared_ring = memory;
    unsigned char* const private_ring = memory + SHARED * SHARED_BYTES;
    Out* const out = reinterpret_cast<Out*>(private_ring + PRIVATE * PRIVATE_BYTES);
    unsigned char* const zeros = reinterpret_cast<unsigned char*>(out + 2);
    // Copies may end in another order than they began: who waits at barriers of its own cannot take
    // another's unit for its own.
    constexpr int LANDED = (PRIVATE + 1) / 2;
    __shared__ Barrier shared_full[SHARED], shared_empty[SHARED], private_full[2][LANDED],
        private_empty[PRIVATE];
    __shared__ Barrier slot_full[QUEUE], slot_empty[QUEUE];
    __shared__ Slot slot[QUEUE];
    const Tiles tiles{rows, high, panels, group};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = threadIdx.x / 128;

    if (threadIdx.x == 0) {
        for (int i = 0; i < SHARED; ++i)
            barrier_init(&shared_full[i], 1), barrier_init(&shared_empty[i], 8);
        for (int i = 0; i < 2 * LANDED; ++i) barrier_init(&private_full[0][i], 1);
        for (int i = 0; i < PRIVATE; ++i) barrier_init(&private_empty[i], 4);
        for (int i = 0; i < QUEUE; ++i)
            barrier_init(&slot_full[i], 1), barrier_init(&slot_empty[i], 9);
        barrier_init_fence();
        tma_prefetch(a), tma_prefetch(b), tma_prefetch(c);
    }
    for (int i = threadIdx.x; i < Out::BYTES / 16; i += blockDim.x)
        reinterpret_cast<float4*>(zeros)[i] = {0.f, 0.f, 0.f, 0.f};
    async_proxy_fence();
    __syncthreads();

    Place<QUEUE> queue;
    if (warp >= 8) {
        give_registers<40>();
        if (warp == 9) {
            for (bool more = true; more; queue.next()) {
                wait(&slot_empty[queue.stage], queue.parity ^ 1);
                const int t = __shfl_sync(~0u, lane == 0 ? atomicAdd(counter, 1) : 0, 0);
                more = t < tiles.count();
                int4 row = {-1, 0, 0, 0};
                int2 at = {0, 0};
                if (more) at = tiles.find(t), row = rows[at.x];
                Slot& to = slot[queue.stage];
                if (row.y + lane < row.z) to.column[lane] = col_idx[row.y + lane];
                if (lane == 0) to.set(row, at.y);
                __syncwarp();
                if (lane == 0) arrive(&slot_full[queue.stage]);
            }
            if (lane == 0 && atomicAdd(counter + 1, 1) == gridDim.x - 1)
                counter[0] = counter[1] = 0;  // for the next launch
        } else if (warp == 8) {
            Loader<T, B, TALL, N, SHARED, PRIVATE, P> load{
                a,
                b,
                shared_ring,
                private_ring,
                shared_full,
                shared_empty,
                private_full,
                private_empty};
            for (;; queue.next()) {
                wait(&slot_full[queue.stage], queue.parity);
                const Slot& from = slot[queue.stage];
                const int row = from.row, first = from.first, end = from.end, panel = from.panel;
                int columns = from.column[lane];
                hand_back_warp(&slot_empty[queue.stage]);
                if (row < 0) break;
                for (int block = first; block < end; block += P) {
                    const int i = (block - first) % 32;
                    if (i == 0 && block > first && block + lane < end)
                        columns = col_idx[block + lane];
                    int column[P];
#pragma unroll
                    for (int p = 0; p < P; ++p) column[p] = __shfl_sync(~0u, columns, i + p);
                    if (lane == 0) load.steps(block, end - block, column, panel, steps);
                    __syncwarp();
                }
            }
        }
        return;
    }

    take_registers<232>();
    const Policy policy = let_go();
    Place<SHARED> in_shared;
    Place<PRIVATE> in_private;
    if (mine == 1) in_private.next();
    Place<LANDED> landed;
    float acc[1][N / 2];
    [[maybe_unused]] unsigned left[GATED ? N / 4 : 1];  // of(first product), two in a register
    const auto multiply = [&](int count) {
        int shared_before = 0, private_before = 0;
        for (int step = 0; step < count; ++step) {
            wait(&shared_full[in_shared.stage], in_shared.parity);
            wait(&private_full[mine][landed.stage], landed.parity);
            const unsigned char* both = shared_ring + in_shared.stage * SHARED_BYTES;
            const unsigned char* own = private_ring + in_private.stage * PRIVATE_BYTES;
            multiply_step<T, B, N, P>(acc, TALL ? own : both, TALL ? both : own, step > 0);
            wgmma_wait<1>();
            if (step > 0)
                hand_back_warp(&shared_empty[shared_before]),
                    hand_back_warp(&private_empty[private_before]);
            shared_before = in_shared.stage, private_before = in_private.stage;
            in_shared.next(), in_private.next(), in_private.next(), landed.next();
        }
        wgmma_wait<0>();
        settle(acc);
        hand_back_warp(&shared_empty[shared_before]),
            hand_back_warp(&private_empty[private_before]);
    };
    for (;; queue.next()) {
        wait(&slot_full[queue.stage], queue.parity);
        const Slot& from = slot[queue.stage];
        const int row = from.row, panel = from.panel;
        int at_column = GATED ? column_of<TALL, N>(panel, mine) : 0;
        const int count = (from.split() - from.first + P - 1) / P * steps;
        [[maybe_unused]] const int others = (from.end - from.split()) * steps;
        hand_back_warp(&slot_empty[queue.stage]);
        if (row < 0) break;
        const int at_row = TALL ? row * 128 + 64 * mine : row * 64;
        if (!GATED) at_column = column_of<TALL, N>(panel, mine);
        if (count == 0) {
            Out::write_zeros(zeros, c, at_row, at_column, policy);
            continue;
        }
        if constexpr (GATED) {
            multiply(count);
#pragma unroll
            for (int i = 0; i < N / 4; ++i) {
                const float2 s = Gate::of(acc[0][2 * i], acc[0][2 * i + 1]);
                left[i] = pack<T>(s.x, s.y);
            }
            multiply(others);
#pragma unroll
            for (int i = 0; i < N / 4; ++i) {
                const float2 s = unpack<T>(left[i]);
                acc[0][2 * i] *= s.x, acc[0][2 * i + 1] *= s.y;
            }
        } else {  // as in `multiply`
            int shared_before = 0, private_before = 0;
            for (int step = 0; step < count; ++step) {
                wait(&shared_full[in_shared.stage], in_shared.parity);
                wait(&private_full[mine][landed.stage], landed.parity);
                const unsigned char* both = shared_ring + in_shared.stage * SHARED_BYTES;
                const unsigned char* own = private_ring + in_private.stage * PRIVATE_BYTES;
                multiply_step<T, B, N, P>(acc, TALL ? own : both, TALL ? both : own, step > 0);
                wgmma_wait<1>();
                if (step > 0)
                    hand_back_warp(&shared_empty[shared_before]),
                        hand_back_warp(&private_empty[private_before]);
                shared_before = in_shared.stage, private_before = in_private.stage;
                in_shared.next(), in_private.next(), in_private.next(), landed.next();
            }
            wgmma_wait<0>();
            settle(acc);
            hand_back_warp(&shared_empty[shared_before]),
                hand_back_warp(&private_empty[private_before]);
        }
        out[mine].write(acc, c, at_row, at_column, 1 + mine, policy);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
