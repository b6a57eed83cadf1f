// opt6_atomic: persistent with a counter. Instead of a fixed order each block claims its next tile
// from one counter for all, in global memory. (Section III-F.)
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring
#include "persistent.cuh"

template <Dtype T, bool COLUMN, int N, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) opt6_atomic(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap
        c,  // m x n or, COLUMN, n x m: boxes of output.cuh, of at most 32 columns, 16 of TF32
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int high, int wide,
    int band,            // TileOrder: block rows, tiles of a block row, rows of a strip
    unsigned* counters)  // two zeros: tiles claimed, blocks that are done
{
    const Operands from{a, b, c, row_ptr, col_idx};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char memory[];
    persist<T, COLUMN, N, STAGES>(from, order, memory, [&] {
        const int tile = atomicAdd(&counters[0], 1);
        // Each block claims one tile too many; the last to do so clears the counters for the next
        // launch.
        if (tile >= order.tiles() && atomicAdd(&counters[1], 1) == gridDim.x - 1)
            counters[0] = counters[1] = 0;
        return tile;
    });
}
