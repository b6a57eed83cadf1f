// opt6_stealing: persistent with work stealing. Each block has a queue, the tiles of the fixed
// order; who is through with its own takes from the next one that still has some. Queues are
// counters in global memory, one for each block. (Section III-F.)
//
// Template:  T, N  as in step.cuh; B is K_MAJOR; COLUMN as in output.cuh; STAGES of the ring
#include "persistent.cuh"

template <Dtype T, bool COLUMN, int N, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) opt6_stealing(
    const __grid_constant__ TensorMap a,  // values of the blocks, 64 rows each: boxes of 64 x K
    const __grid_constant__ TensorMap b,  // n x k: boxes of N x K
    const __grid_constant__ TensorMap
        c,  // m x n or, COLUMN, n x m: boxes of output.cuh, of at most 32 columns, 16 of TF32
    const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int high, int wide,
    int band,            // TileOrder: block rows, tiles of a block row, rows of a strip
    unsigned* counters)  // gridDim.x + 1 zeros: tiles taken from each queue, blocks that are done
{
    const Operands from{a, b, c, row_ptr, col_idx};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char memory[];
    int queue = blockIdx.x, exhausted = 0;
    persist<T, COLUMN, N, STAGES>(from, order, memory, [&] {
        while (exhausted < gridDim.x) {
            const int tile = queue + (int)atomicAdd(&counters[queue], 1) * (int)gridDim.x;
            if (tile < order.tiles()) return tile;
            queue = queue + 1 == gridDim.x ? 0 : queue + 1;
            ++exhausted;
        }
        if (atomicAdd(&counters[gridDim.x], 1) ==
            gridDim.x - 1)  // all have seen every queue empty: for the next launch
            for (int i = 0; i <= gridDim.x; ++i) counters[i] = 0;
        return order.tiles();
    });
}
