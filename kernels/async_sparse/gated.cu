// gated: H = silu(G · X) ∘ (U · X), the first half of a SwiGLU layer, in one launch: neither product is ever in memory (sm_90a).
//
//   block row r of both     G's blocks │ U's blocks     one list, first to middle to end: the loader need not know where G's end
//   a warpgroup             wgmma G's blocks ─ silu, rounded, two in a register ─ wgmma U's blocks ─ multiply ─ store
// unit_ring.cu with one change: a tile is multiplied in two runs. Between them the 64 x N accumulators become N / 4 registers
// a thread, rounded to T as the tensor would be that another launch writes; the accumulators then begin anew. The other warpgroup
// multiplies meanwhile, and the rings fill. Block rows in which G or U has no block are zeros, and have none in `rows`.
// silu(x) = x / (1 + e^-x), of two values at once with one division: both would be divided by the product of the two sums.
//
// Template:  T, N  as in step.cuh: BF16 or F16; SHARED, PRIVATE, BUFFERS  as in unit_ring.cu. B and C are column-major
#include "loader.cuh"
#include "output.cuh"

struct Halves : Slot {
    int middle;  // U's first block
};

__device__ __forceinline__ float2 silu(float x, float y)
{
    // Beyond -40 the product of two sums might overflow; the result is less than 1e-15 there, and x keeps its NaN.
    const float p = 1.f + __expf(-fmaxf(x, -40.f)), q = 1.f + __expf(-fmaxf(y, -40.f));
    const float both = __fdividef(1.f, p * q);
    return make_float2(x * (q * both), y * (p * both));
}

template <Dtype T, int N, int SHARED, int PRIVATE, int BUFFERS>
__global__ void __launch_bounds__(384, 1) gated(
    const __grid_constant__ TensorMap a,  // values: 64 rows of b_col for each block; boxes of 64 x K
    const __grid_constant__ TensorMap b,  // X as tokens x k; boxes of N x K
    const __grid_constant__ TensorMap c,  // H as tokens x m; boxes of output.cuh
    const int4* rows, const int* col_idx, unsigned* counter,  // block row, first, end, middle; block columns; two zeros
    int high, int panels, int group, int steps)               // as in unit_ring.cu
{
    static_assert(T != TF32 && SHARED >= 2 && PRIVATE >= 3 && BUFFERS >= 1, "16-bit types; rings of 2 and 3 units at least");
    using Out = Output<T, true, N, BUFFERS>;
    constexpr int B_BYTES = N * 128, QUEUE = 2, LANDED = (PRIVATE + 1) / 2;
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char* const shared_ring = memory;
    unsigned char* const private_ring = memory + SHARED * A_BYTES;
    Out* const out = reinterpret_cast<Out*>(private_ring + PRIVATE * B_BYTES);
    unsigned char* const zeros = reinterpret_cast<unsigned char*>(out + 2);
    __shared__ Barrier shared_full[SHARED], shared_empty[SHARED], private_full[2][LANDED], private_empty[PRIVATE];
    __shared__ Barrier slot_full[QUEUE], slot_empty[QUEUE];
    __shared__ Halves slot[QUEUE];
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
    if (warp >= 8) {  // as in unit_ring.cu
        give_registers<40>();
        if (warp == 9) {
            for (bool more = true; more; queue.next()) {
                wait(&slot_empty[queue.stage], queue.parity ^ 1);
                const int t = __shfl_sync(~0u, lane == 0 ? atomicAdd(counter, 1) : 0, 0);
                more = t < tiles.count();
                int4 row = {-1, 0, 0, 0};
                int2 at = {0, 0};
                if (more) at = tiles.find(t), row = rows[at.x];
                Halves& to = slot[queue.stage];
                if (row.y + lane < row.z) to.column[lane] = col_idx[row.y + lane];
                if (lane == 0) to.row = row.x, to.panel = at.y, to.first = row.y, to.end = row.z, to.middle = row.w;
                __syncwarp();
                if (lane == 0) arrive(&slot_full[queue.stage]);
            }
            if (lane == 0 && atomicAdd(counter + 1, 1) == gridDim.x - 1) counter[0] = counter[1] = 0;  // for the next launch
        } else if (warp == 8) {
            Loader<T, K_MAJOR, false, N, SHARED, PRIVATE, 1> load{a, b, shared_ring, private_ring, shared_full, shared_empty,
                                                                  private_full, private_empty};
            for (;; queue.next()) {
                wait(&slot_full[queue.stage], queue.parity);
                const Slot& from = slot[queue.stage];
                const int row = from.row, first = from.first, end = from.end, panel = from.panel;
                int columns = from.column[lane];
                hand_back_warp(&slot_empty[queue.stage]);
                if (row < 0) break;
                for (int block = first; block < end; ++block) {
                    const int i = (block - first) % 32;
                    if (i == 0 && block > first && block + lane < end) columns = col_idx[block + lane];
                    const int column[1] = {__shfl_sync(~0u, columns, i)};
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
    unsigned left[N / 4];  // silu(G · X), two in a register
    const auto multiply = [&](int count) {
        int shared_before = 0, private_before = 0;
        for (int step = 0; step < count; ++step) {
            wait(&shared_full[in_shared.stage], in_shared.parity);
            wait(&private_full[mine][landed.stage], landed.parity);
            multiply_step<T, K_MAJOR, N>(acc, shared_ring + in_shared.stage * A_BYTES, private_ring + in_private.stage * B_BYTES,
                                         step > 0);
            wgmma_wait<1>();
            if (step > 0) hand_back_warp(&shared_empty[shared_before]), hand_back_warp(&private_empty[private_before]);
            shared_before = in_shared.stage, private_before = in_private.stage;
            in_shared.next(), in_private.next(), in_private.next(), landed.next();
        }
        wgmma_wait<0>();
        settle(acc);
        hand_back_warp(&shared_empty[shared_before]), hand_back_warp(&private_empty[private_before]);
    };
    for (;; queue.next()) {
        wait(&slot_full[queue.stage], queue.parity);
        const Halves& from = slot[queue.stage];
        const int row = from.row, at_row = row * 64, at_column = (2 * from.panel + mine) * N;
        const int of_g = (from.middle - from.first) * steps, of_u = (from.end - from.middle) * steps;
        hand_back_warp(&slot_empty[queue.stage]);
        if (row < 0) break;
        if (of_g == 0) {
            Out::write_zeros(zeros, c, at_row, at_column, policy);
            continue;
        }
        multiply(of_g);
#pragma unroll
        for (int i = 0; i < N / 4; ++i) {
            const float2 s = silu(acc[0][2 * i], acc[0][2 * i + 1]);
            left[i] = pack<T>(s.x, s.y);
        }
        multiply(of_u);
#pragma unroll
        for (int i = 0; i < N / 4; ++i) {
            const float2 s = unpack<T>(left[i]);
            acc[0][2 * i] *= s.x, acc[0][2 * i + 1] *= s.y;
        }
        out[mine].write(acc, c, at_row, at_column, 1 + mine, policy);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
