// opt2: TMA. One thread asks the copy engine for the next block and its B while the warpgroup
// multiplies this one.
//
//   copy engine  │ step 0 │ step 1 │ step 2 │          two buffers; the swizzle comes with the copy
//   warpgroup             │ wgmma 0│ wgmma 1│ wgmma 2
//
// C is staged in the buffers and stored by the copy engine, too. (Section III-B, Fig. 3b.)
//
// Template:  T, N    as in step.cuh; B is K_MAJOR
//            COLUMN  as in output.cuh
//            TRACE   whether clocks are kept (trace.cuh)
#include "output.cuh"
#include "trace.cuh"

template <Dtype T, bool COLUMN, int N, bool TRACE = false>
__global__ void __launch_bounds__(128) opt2(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap c,  // m x n or, COLUMN, n x m: boxes of output.cuh
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
    Span* spans)  // Bcsr, blocks of 64 x 64; TRACE
{
    const Trace<TRACE> trace{spans};
    const bool leader = threadIdx.x == 0;
    constexpr int STEPS = 64 / K<T>, BYTES = A_BYTES + N * 128;
    using Out = Output<T, COLUMN, N, N / Output<T, COLUMN, N, 1>::WIDE>;
    extern __shared__ __align__(1024) unsigned char memory[];  // two of (A, B)
    static_assert(sizeof(Out) <= 2 * BYTES, "C is staged in the buffers");
    __shared__ Barrier full[2];
    const int row = blockIdx.x, column = blockIdx.y * N, first = row_ptr[row] * STEPS,
              end = row_ptr[row + 1] * STEPS;
    const auto load = [&](int step) {
        const int s = (step - first) % 2, part = step % STEPS;
        trace.begin(LOAD, 0, step - first);
        arrive_expect(&full[s], BYTES);
        tma_load(memory + s * BYTES, a, part * K<T>, step / STEPS * 64, &full[s]);
        load_b<T, K_MAJOR, N>(memory + s * BYTES + A_BYTES, b,
                              (col_idx[step / STEPS] * STEPS + part) * K<T>, column, &full[s]);
    };

    if (leader) {
        barrier_init(&full[0], 1), barrier_init(&full[1], 1);
        barrier_init_fence();
        if (first < end) load(first);
    }
    __syncthreads();
    float acc[1][N / 2] = {};
    Place<2> at;
    for (int step = first; step < end; ++step, at.next()) {
        if (leader && step + 1 < end) load(step + 1);
        wait(&full[at.stage], at.parity);
        if (leader) trace.end(LOAD, 0, step - first), trace.begin(MULTIPLY, 0, step - first);
        multiply_step<T, K_MAJOR, N>(
            acc, memory + at.stage * BYTES, memory + at.stage * BYTES + A_BYTES, true);
        wgmma_wait<0>();
        if (leader) trace.end(MULTIPLY, 0, step - first);
        __syncthreads();  // the buffer may be filled again
    }
    settle(acc);
    Out& out = *reinterpret_cast<Out*>(memory);
    if (leader) trace.begin(STORE, 0, 0);
    out.write(acc, c, row * 64, column, 1, let_go());
    if (leader) tma_store_wait<0>(), trace.end(STORE, 0, 0);
}
