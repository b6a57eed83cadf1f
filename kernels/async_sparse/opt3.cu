// opt3: warp specialisation. A warpgroup of its own asks for copies, two multiply, with three
// stages between them (specialised.cuh).
//
//   loads     │ step 0 │ step 1 │ step 2 │ step 3 │    up to two steps ahead of those that multiply
//   multiply           │ step 0 │ step 1 │ step 2 │
//
// Barriers are used as cuda::barrier would be: whoever waits arrives first, all 256 threads that
// multiply at each of them.
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring
#include "specialised.cuh"

template <int STAGES>
struct AllArrive {
    Barrier *full, *empty;
    __device__ __forceinline__ void init()
    {
        for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 257), barrier_init(&empty[s], 257);
    }
    __device__ __forceinline__ void offer()
    {
        for (int s = 0; s < STAGES; ++s) arrive(&empty[s]);
    }
    __device__ __forceinline__ void wait_empty(const Place<STAGES>& at)
    {
        arrive(&empty[at.stage]), wait(&empty[at.stage], at.parity);
    }
    __device__ __forceinline__ void wait_full(const Place<STAGES>& at)
    {
        arrive(&full[at.stage]), wait(&full[at.stage], at.parity);
    }
    __device__ __forceinline__ void hand_back(const Place<STAGES>& at) { arrive(&empty[at.stage]); }
};

template <Dtype T, bool COLUMN, int N, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) opt3(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap c,  // m x n or, COLUMN, n x m: boxes of output.cuh
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    one_tile<T, COLUMN, N, STAGES, true>(
        Operands{a, b, c, row_ptr, col_idx}, memory, AllArrive<STAGES>{full, empty});
}
