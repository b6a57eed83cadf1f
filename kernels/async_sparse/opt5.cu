// opt5: no zeroing. Accumulators are not cleared: the first wgmma of a tile overwrites them
// (scale-d 0).
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring;
//            TRACE  whether clocks are kept (trace.cuh)
#include "specialised.cuh"

template <Dtype T, bool COLUMN, int N, int STAGES, bool TRACE = false>
__global__ void __launch_bounds__(THREADS, 1) opt5(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap c,  // m x n or, COLUMN, n x m: boxes of output.cuh
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
    Span* spans)  // Bcsr, blocks of 64 x 64; TRACE
{
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ Barrier full[STAGES], empty[STAGES];
    one_tile<T, COLUMN, N, STAGES, false>(Operands{a, b, c, row_ptr, col_idx}, memory,
                                          OneArrives<STAGES>{full, empty}, Trace<TRACE>{spans});
}
