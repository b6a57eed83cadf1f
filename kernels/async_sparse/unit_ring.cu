// unit_ring: blocks that stay and claim tiles; a ring of units, each filled and freed on its own, and stores that overlap.
//
//   warp 9        claims a tile, looks up its block row ──► slot of a queue
//   warp 8        A of a step ──► shared ring;  B of a step for each warpgroup ──► private ring, in turns
//   warpgroup 0   wait shared, private ── wgmma ──► free both ... round, store     each at its own pace
//   warpgroup 1   wait shared, private ── wgmma ──► free both ... round, store
//
// WIDE tiles (64 x 2N): both warpgroups read the same A, and each N columns of B. TALL tiles (128 x N), for blocks of 128 rows:
// both read the same B, and each 64 rows of A. What both read is in the shared ring, the rest in the private one: a unit is
// loaded again as soon as the one warpgroup that read it has left it, and half a step of prefetch more fits than in stages.
//
// The order of the tiles (Tiles): groups of panels, whose B stays in L2; in a group the longest block rows first, each with all
// its panels. The next tile is claimed from a counter when one is begun, so a block is late by a tile at most, and the
// last tiles are short ones. Tiles without blocks go out as copies of one box of zeros.
//
// Template:  T, B, N, P  as in step.cuh; COLUMN, BUFFERS as in output.cuh
//            TALL     whether tiles are 128 x N
//            SHARED, PRIVATE  units of the two rings
#include "loader.cuh"
#include "output.cuh"

template <Dtype T, Major B, bool COLUMN, bool TALL, int N, int SHARED, int PRIVATE, int BUFFERS, int P>
__global__ void __launch_bounds__(384, 1) unit_ring(
    const __grid_constant__ TensorMap a,  // values: rows of b_col, b_row for each block; boxes of 64 x K / P
    const __grid_constant__ TensorMap b,  // K_MAJOR: n x k, boxes of N x K / P; MN_MAJOR: k x n, boxes of K / P x 64
    const __grid_constant__ TensorMap c,  // m x n or, COLUMN, n x m; boxes of output.cuh
    const int4* rows, const int* col_idx, unsigned* counter,  // Tiles; Bcsr; two zeros: tiles claimed, blocks that are done
    int high, int panels, int group,                          // Tiles
    int steps)                                                // of a block: its bytes of k / 128; 1 where P blocks share one
{
    static_assert(SHARED >= 2 && PRIVATE >= 3 && BUFFERS >= 1, "rings have at least 2 and 3 units, since one is held");
    using Out = Output<T, COLUMN, N, BUFFERS>;
    constexpr int B_BYTES = N * 128, SHARED_BYTES = TALL ? B_BYTES : A_BYTES, PRIVATE_BYTES = TALL ? A_BYTES : B_BYTES;
    constexpr int QUEUE = 2;
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char* const shared_ring = memory;
    unsigned char* const private_ring = memory + SHARED * SHARED_BYTES;
    Out* const out = reinterpret_cast<Out*>(private_ring + PRIVATE * PRIVATE_BYTES);
    unsigned char* const zeros = reinterpret_cast<unsigned char*>(out + 2);
    // Copies may end in another order than they began: who waits at barriers of its own cannot take another's unit for its own.
    constexpr int LANDED = (PRIVATE + 1) / 2;
    __shared__ Barrier shared_full[SHARED], shared_empty[SHARED], private_full[2][LANDED], private_empty[PRIVATE];
    __shared__ Barrier slot_full[QUEUE], slot_empty[QUEUE];
    __shared__ Slot slot[QUEUE];
    const Tiles tiles{rows, high, panels, group};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = threadIdx.x / 128;

    if (threadIdx.x == 0) {
        for (int i = 0; i < SHARED; ++i) barrier_init(&shared_full[i], 1), barrier_init(&shared_empty[i], 8);
        for (int i = 0; i < 2 * LANDED; ++i) barrier_init(&private_full[0][i], 1);
        for (int i = 0; i < PRIVATE; ++i) barrier_init(&private_empty[i], 4);
        for (int i = 0; i < QUEUE; ++i) barrier_init(&slot_full[i], 1), barrier_init(&slot_empty[i], 9);
        barrier_init_fence();
        tma_prefetch(a), tma_prefetch(b), tma_prefetch(c);
    }
    for (int i = threadIdx.x; i < Out::BYTES / 16; i += blockDim.x) reinterpret_cast<float4*>(zeros)[i] = {0.f, 0.f, 0.f, 0.f};
    async_proxy_fence();
    __syncthreads();

    Place<QUEUE> queue;
    if (warp >= 8) {
        give_registers<40>();
        if (warp == 9) {
            for (bool more = true; more; queue.next()) {
                wait(&slot_empty[queue.stage], queue.parity ^ 1);
                int t = lane == 0 ? atomicAdd(counter, 1) : 0;
                t = __shfl_sync(~0u, t, 0);
                more = t < tiles.count();
                int4 row = {-1, 0, 0, 0};
                int2 at = {0, 0};
                if (more) at = tiles.find(t), row = rows[at.x];
                Slot& to = slot[queue.stage];
                if (row.y + lane < row.z) to.column[lane] = col_idx[row.y + lane];
                if (lane == 0) to.row = row.x, to.panel = at.y, to.first = row.y, to.end = row.z;
                __syncwarp();
                if (lane == 0) arrive(&slot_full[queue.stage]);
            }
            if (lane == 0 && atomicAdd(counter + 1, 1) == gridDim.x - 1) counter[0] = counter[1] = 0;  // for the next launch
        } else if (warp == 8) {
            Loader<T, B, TALL, N, SHARED, PRIVATE, P> load{a, b, shared_ring, private_ring, shared_full, shared_empty,
                                                           private_full, private_empty};
            for (;; queue.next()) {
                wait(&slot_full[queue.stage], queue.parity);
                const Slot& from = slot[queue.stage];
                const int row = from.row, first = from.first, end = from.end, panel = from.panel;
                int columns = from.column[lane];
                hand_back_warp(&slot_empty[queue.stage]);
                if (row < 0) break;
                for (int block = first; block < end; block += P) {
                    const int i = (block - first) % 32;
                    if (i == 0 && block > first && block + lane < end) columns = col_idx[block + lane];
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
    for (;; queue.next()) {
        wait(&slot_full[queue.stage], queue.parity);
        const int row = slot[queue.stage].row, panel = slot[queue.stage].panel;
        const int count = (slot[queue.stage].end - slot[queue.stage].first + P - 1) / P * steps;
        hand_back_warp(&slot_empty[queue.stage]);
        if (row < 0) break;
        const int at_row = TALL ? row * 128 + 64 * mine : row * 64, at_column = TALL ? panel * N : (2 * panel + mine) * N;
        if (count == 0) {
            Out::write_zeros(zeros, c, at_row, at_column, policy);
            continue;
        }
        int shared_before = 0, private_before = 0;
        for (int step = 0; step < count; ++step) {
            wait(&shared_full[in_shared.stage], in_shared.parity);
            wait(&private_full[mine][landed.stage], landed.parity);
            const unsigned char* both = shared_ring + in_shared.stage * SHARED_BYTES;
            const unsigned char* own = private_ring + in_private.stage * PRIVATE_BYTES;
            multiply_step<T, B, N, P>(acc, TALL ? own : both, TALL ? both : own, step > 0);
            wgmma_wait<1>();
            if (step > 0) hand_back_warp(&shared_empty[shared_before]), hand_back_warp(&private_empty[private_before]);
            shared_before = in_shared.stage, private_before = in_private.stage;
            in_shared.next(), in_private.next(), in_private.next(), landed.next();
        }
        wgmma_wait<0>();
        settle(acc);
        hand_back_warp(&shared_empty[shared_before]), hand_back_warp(&private_empty[private_before]);
        out[mine].write(acc, c, at_row, at_column, 1 + mine, policy);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
