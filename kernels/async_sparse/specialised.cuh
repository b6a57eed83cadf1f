// What opt3 to opt7 share: a warpgroup that loads, two that multiply, and a ring of stages between
// them.
//
//   warpgroup 0   thread 0: wait empty ── A, B by TMA ──► full       the other 127 threads idle
//   warpgroup 1   wait full ── wgmma, columns 0 to N - 1 of the tile ──► empty
//   warpgroup 2   wait full ── wgmma, columns N to 2N - 1 ──► empty  the same A, other columns of B
//
// A tile is 64 rows by 2N columns of C. Registers move from the warpgroup that loads to those that
// multiply (setmaxnreg, 24 and 240). (Section III-C, Fig. 4.) TRACE keeps clocks (trace.cuh).
#pragma once

#include "output.cuh"
#include "trace.cuh"

constexpr int THREADS = 384;

struct Operands {
    const TensorMap &a, &b, &c;    // as opt3 describes them
    const int *row_ptr, *col_idx;  // Bcsr, blocks of 64 x 64
};

template <Dtype T, int N, int STAGES>
struct Ring {
    static constexpr int STEPS = 64 / K<T>;  // of a block
    static constexpr int B_BYTES = N * 128, BYTES = A_BYTES + 2 * B_BYTES;

    unsigned char a[STAGES][A_BYTES];
    unsigned char b[STAGES][2][B_BYTES];

    // One thread loads the steps of a tile. Signals: the protocol of opt3 or opt4.
    template <class Signals, bool TRACE = false>
    __device__ __forceinline__ void produce(const Operands& from, Place<STAGES>& at, int row,
                                            int panel, Signals& signals, Trace<TRACE> trace = {})
    {
        const int first = from.row_ptr[row] * STEPS, end = from.row_ptr[row + 1] * STEPS;
        for (int step = first; step < end; ++step, at.next()) {
            const int block = step / STEPS, part = step % STEPS,
                      k = (from.col_idx[block] * STEPS + part) * K<T>;
            signals.wait_empty(at);
            Barrier* full = &signals.full[at.stage];
            trace.begin(LOAD, 0, step - first);
            arrive_expect(full, BYTES);
            tma_load(a[at.stage], from.a, part * K<T>, block * 64, full);
            load_b<T, K_MAJOR, N>(b[at.stage][0], from.b, k, 2 * panel * N, full);
            load_b<T, K_MAJOR, N>(b[at.stage][1], from.b, k, (2 * panel + 1) * N, full);
        }
    }

    // A warpgroup multiplies the steps of a tile; half: which columns. ZERO: whether it clears its
    // accumulators first, and always adds; otherwise the first wgmma overwrites them.
    template <bool ZERO, class Signals, bool TRACE = false>
    __device__ __forceinline__ void consume(float (&acc)[1][N / 2], Place<STAGES>& at, int steps,
                                            int half, Signals& signals, Trace<TRACE> trace = {})
    {
        if (ZERO || steps == 0)
#pragma unroll
            for (int i = 0; i < N / 2; ++i) acc[0][i] = 0.f;
        for (int step = 0; step < steps; ++step, at.next()) {
            signals.wait_full(at);
            if (TRACE && threadIdx.x % 128 == 0) trace.begin(MULTIPLY, half + 1, step);
            multiply_step<T, K_MAJOR, N>(acc, a[at.stage], b[at.stage][half], ZERO || step > 0);
            wgmma_wait<0>();
            if (TRACE && threadIdx.x % 128 == 0) trace.end(MULTIPLY, half + 1, step);
            signals.hand_back(at);
        }
        settle(acc);
    }
};

// One arrival a warpgroup at each barrier, phases told apart by hand (opt4).
template <int STAGES>
struct OneArrives {
    Barrier *full, *empty;
    __device__ __forceinline__ void init()
    {
        for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 1), barrier_init(&empty[s], 2);
    }
    // Warpgroups that multiply say at first that every stage is empty.
    __device__ __forceinline__ void offer()
    {
        if (threadIdx.x % 128 == 0)
            for (int s = 0; s < STAGES; ++s) arrive(&empty[s]);
    }
    __device__ __forceinline__ void wait_empty(const Place<STAGES>& at)
    {
        wait(&empty[at.stage], at.parity);
    }
    __device__ __forceinline__ void wait_full(const Place<STAGES>& at)
    {
        wait(&full[at.stage], at.parity);
    }
    __device__ __forceinline__ void hand_back(const Place<STAGES>& at)
    {
        if (threadIdx.x % 128 == 0) arrive(&empty[at.stage]);
    }
};

// A block that computes one tile: block row blockIdx.x, panel blockIdx.y. C is staged in the ring
// when both are done with it.
template <Dtype T, bool COLUMN, int N, int STAGES, bool ZERO, class Signals, bool TRACE = false>
__device__ __forceinline__ void
one_tile(const Operands& from, unsigned char* memory, Signals signals, Trace<TRACE> trace = {})
{
    using R = Ring<T, N, STAGES>;
    using Out = Output<T, COLUMN, N, N / Output<T, COLUMN, N, 1>::WIDE>;
    static_assert(2 * sizeof(Out) <= sizeof(R), "C is staged in the ring");
    R& ring = *reinterpret_cast<R*>(memory);
    const int row = blockIdx.x, panel = blockIdx.y, group = threadIdx.x / 128;
    const int steps = (from.row_ptr[row + 1] - from.row_ptr[row]) * R::STEPS;
    if (threadIdx.x == 0) {
        signals.init();
        barrier_init_fence();
        tma_prefetch(from.a), tma_prefetch(from.b), tma_prefetch(from.c);
    }
    __syncthreads();
    Place<STAGES> at;
    if (group == 0) {
        give_registers<TRACE ? 40 : 24>();
        if (threadIdx.x == 0) ring.produce(from, at, row, panel, signals, trace);
        if (TRACE && threadIdx.x == 32)  // sees the copies land
            for (int step = 0; step < steps; ++step, at.next()) {
                wait(&signals.full[at.stage], at.parity);
                trace.end(LOAD, 0, step);
            }
        return;
    }
    take_registers<TRACE ? 232 : 240>();
    signals.offer();
    float acc[1][N / 2];
    ring.template consume<ZERO>(acc, at, steps, group - 1, signals, trace);
    if (TRACE && threadIdx.x % 128 == 0) trace.begin(STORE, group, 0);
    named_barrier(3, 256);
    Out& out = reinterpret_cast<Out*>(memory)[group - 1];
    out.write(acc, from.c, row * 64, (2 * panel + group - 1) * N, group, let_go());
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
    if (TRACE && threadIdx.x % 128 == 0) trace.end(STORE, group, 0);
}
