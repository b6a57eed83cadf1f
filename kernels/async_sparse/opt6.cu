// opt6: persistent. A block for each SM takes every gridDim.x-th tile of an order that is fixed,
// and stores one tile while the next is loaded (persistent.cuh). What it costs: a block that drew
// long block rows is waited for. (Section III-E.)
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring
#include "persistent.cuh"

template <Dtype T, bool COLUMN, int N, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) opt6(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap
        c,  // m x n or, COLUMN, n x m: boxes of output.cuh, of at most 32 columns, 16 of TF32
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int high, int wide,
    int band)  // TileOrder: block rows, tiles of a block row, rows of a strip
{
    const Operands from{a, b, c, row_ptr, col_idx};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char memory[];
    int tile = (int)blockIdx.x - (int)gridDim.x;
    persist<T, COLUMN, N, STAGES>(from, order, memory, [&] { return tile += gridDim.x; });
}
