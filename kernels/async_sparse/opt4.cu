// opt4: one arrival a warpgroup. Instead of all 128 threads of a warpgroup, one arrives at a
// barrier, and waiting is not arriving: the phase of each barrier is told by its parity, counted by
// hand (OneArrives in specialised.cuh).
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring
#include "specialised.cuh"

template <Dtype T, bool COLUMN, int N, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) opt4(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap c,  // m x n or, COLUMN, n x m: boxes of output.cuh
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    one_tile<T, COLUMN, N, STAGES, true>(
        Operands{a, b, c, row_ptr, col_idx}, memory, OneArrives<STAGES>{full, empty});
}
